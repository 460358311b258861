"""One request and its reply: bytes are counted, decompressed within bounds and parsed strictly; failures are typed."""

from __future__ import annotations

import email.utils
import json
import math
import time
import zlib
from collections.abc import Mapping
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


async def post(lane: httpx.AsyncBaseTransport, url: str, headers: Mapping[str, str], payload: bytes, cap: int) -> Reply:
    """Send and read one reply; raises Failure. The caller holds the deadline. A redirect is a refusal: it is not followed."""
    try:
        response = await lane.handle_async_request(httpx.Request("POST", url, headers=dict(headers), content=payload))
        try:
            if response.status_code != 200:
                raise _refusal(response.status_code, response.headers.get("retry-after"))
            return parse(await _body(response, cap))
        finally:
            await response.aclose()
    except httpx.TimeoutException as error:
        raise Failure("timeout", type(error).__name__) from None
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
        raise Failure("connection", type(error).__name__) from None


async def _body(response: httpx.Response, cap: int) -> bytes:
    """The decoded bytes, at most `cap` of them: more is refused, however small it was on the wire."""
    encoding = response.headers.get("content-encoding", "identity").lower().strip()
    if encoding not in ("identity", "gzip", "deflate", ""):
        raise Failure("unreadable", f"content encoding {encoding[:20]}")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in ("gzip", "deflate") else None
    found = bytearray()
    async for chunk in response.aiter_raw():
        try:
            found += unpack.decompress(chunk, cap + 1 - len(found)) if unpack else chunk
        except zlib.error:
            raise Failure("unreadable", "broken compression") from None
        if len(found) > cap or (unpack and unpack.unconsumed_tail):
            raise Failure("too_large", f"more than {cap} bytes")
    return bytes(found)


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
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def parse(body: bytes) -> Reply:
    """A chat completion. Blank lines and `: keep-alive` comments before it are what a busy service sends."""
    text = body.decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(":")]
    try:
        found = strict_json("\n".join(lines))
        choice = found["choices"][0]
        content, model = choice["message"]["content"], found["model"]
        reason = choice.get("finish_reason") or ""
    except (ValueError, RecursionError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Failure("unreadable", f"no chat completion ({type(error).__name__})") from None
    usage = _usage(found.get("usage"))
    if not isinstance(model, str) or not isinstance(content, str | None):
        raise Failure("unreadable", "no chat completion (types)", usage=usage)
    fingerprint = found.get("system_fingerprint")
    return Reply(content or "", model, fingerprint if isinstance(fingerprint, str) else None, str(reason), usage)


def _usage(found: Any) -> Usage:
    try:
        prompt, out = int(found["prompt_tokens"]), int(found["completion_tokens"])
        hit = int(found.get("prompt_cache_hit_tokens") or 0)
    except (KeyError, TypeError, ValueError, AttributeError):
        return Usage()
    if prompt < 0 or out < 0:
        return Usage()
    hit = min(max(hit, 0), prompt)
    return Usage(hit, prompt - hit, out, True)
