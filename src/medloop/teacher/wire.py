"""One HTTP request and its reply: size-limited, decompressed within bounds, parsed strictly; failures are typed."""

import email.utils
import json
import math
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from medloop.teacher.failures import Failure, Usage


@dataclass(frozen=True)
class Reply:
    content: str
    model: str
    fingerprint: str | None
    finish_reason: str
    usage: Usage


async def post(
    connection: httpx.AsyncBaseTransport,
    url: str,
    headers: Mapping[str, str],
    payload: bytes,
    max_bytes: int,
    *,
    on_sent: Callable[[], None] = lambda: None,
) -> Reply:
    """Send a request and read its reply; raises Failure. The caller sets the deadline. A redirect is refused, not followed.

    `on_sent` is called when the first byte of the request leaves: before that the service cannot have charged for it.
    """

    async def trace(event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(".send_request_headers.started"):
            on_sent()

    try:
        request = httpx.Request("POST", url, headers=dict(headers), content=payload, extensions={"trace": trace})
        response = await connection.handle_async_request(request)
        try:
            if response.status_code != 200:
                raise _refusal(response.status_code, response.headers.get("retry-after"))
            return parse(await _body(response, max_bytes))
        finally:
            await response.aclose()
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise Failure("unreachable", type(error).__name__) from None
    except httpx.TimeoutException as error:
        raise Failure("timeout", type(error).__name__) from None
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise Failure("connection", type(error).__name__) from None


async def _body(response: httpx.Response, max_bytes: int) -> bytes:
    """The decoded bytes; more than `max_bytes` is refused, however small it was when compressed."""
    encoding = response.headers.get("content-encoding", "identity").lower().strip()
    if encoding not in ("identity", "gzip", "deflate", ""):
        raise Failure("unreadable", f"content encoding {encoding[:20]}")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in ("gzip", "deflate") else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        try:
            body += unpack.decompress(chunk, max_bytes + 1 - len(body)) if unpack else chunk
        except zlib.error:
            raise Failure("unreadable", "broken compression") from None
        if len(body) > max_bytes or (unpack and unpack.unconsumed_tail):
            raise Failure("too_large", f"more than {max_bytes} bytes")
    return bytes(body)


def _refusal(status: int, retry_after: str | None) -> Failure:
    wait = _seconds(retry_after)
    if status == 402:
        return Failure("no_balance", "status 402: the account has no balance")
    if status in (401, 403):
        return Failure("bad_key", f"status {status}: the key was not accepted")
    if status == 429:
        return Failure("rate", "status 429", retry_after=wait)
    if status in (408, 409) or status >= 500:
        return Failure("server", f"status {status}", retry_after=wait)
    return Failure("refused", f"status {status}")


def _seconds(text: str | None) -> float | None:
    """Retry-After is a number of seconds or a date."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        try:
            value = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return max(0.0, value) if math.isfinite(value) else None


def strict_json(text: str | bytes) -> Any:
    """JSON without NaN, infinity and repeated keys: each could hide a second verdict behind the first."""
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeats)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is repeated")
    return values


def parse(body: bytes) -> Reply:
    """A chat completion. A busy service sends blank lines and `: keep-alive` comments before it."""
    text = body.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(":")]
    try:
        completion = strict_json("\n".join(lines))
        choice = completion["choices"][0]
        content, model = choice["message"]["content"], completion["model"]
        reason = choice.get("finish_reason") or ""
    except (ValueError, RecursionError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Failure("unreadable", f"no chat completion ({type(error).__name__})") from None
    usage = _usage(completion.get("usage"))
    if not isinstance(model, str) or not isinstance(content, str | None):
        raise Failure("unreadable", "no chat completion (types)", usage=usage)
    fingerprint = completion.get("system_fingerprint")
    return Reply(content or "", model, fingerprint if isinstance(fingerprint, str) else None, str(reason), usage)


def _usage(counts: Any) -> Usage:
    try:
        prompt, out = int(counts["prompt_tokens"]), int(counts["completion_tokens"])
        hit = int(counts.get("prompt_cache_hit_tokens") or 0)
    except (KeyError, TypeError, ValueError, AttributeError):
        return Usage()
    if prompt < 0 or out < 0:
        return Usage()
    hit = min(max(hit, 0), prompt)
    return Usage(hit, prompt - hit, out, True)
