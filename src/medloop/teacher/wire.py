"""One HTTP request and its reply: size-limited, decompressed within bounds, parsed strictly; failures are typed."""

import email.utils
import json
import math
import re
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

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
            _check_type(response.headers.get("content-type", "application/json"))
            return parse(await _body(response, max_bytes))
        finally:
            await response.aclose()
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise Failure("unreachable", type(error).__name__) from None
    except httpx.TimeoutException as error:
        raise Failure("timeout", type(error).__name__) from None
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise Failure("connection", type(error).__name__) from None


def _check_type(content_type: str) -> None:
    """JSON in UTF-8: a page of a proxy or a body in another encoding is not read at all."""
    kind, _, options = content_type.lower().partition(";")
    charset = re.search(r"charset\s*=\s*[\"']?([\w-]+)", options)
    if not re.fullmatch(r"\s*(?:application|text)/(?:[\w.-]+\+)?json\s*", kind) or (charset and charset[1] not in _UTF8):
        raise Failure("unreadable", "the content type is not JSON in UTF-8")


_UTF8 = ("utf-8", "utf8", "us-ascii")


async def _body(response: httpx.Response, max_bytes: int) -> bytes:
    """The decoded bytes; more than `max_bytes` is refused, however small it was when compressed."""
    encoding = response.headers.get("content-encoding", "identity").lower().strip()
    if encoding not in ("identity", "gzip", "deflate", ""):
        raise Failure("unreadable", "an unknown content encoding")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if encoding in ("gzip", "deflate") else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        try:
            body += unpack.decompress(chunk, max_bytes + 1 - len(body)) if unpack else chunk
        except zlib.error:
            raise Failure("unreadable", "broken compression") from None
        if len(body) > max_bytes or (unpack and unpack.unconsumed_tail):
            raise Failure("too_large", f"more than {max_bytes} bytes")
    if unpack and (not unpack.eof or unpack.unused_data):
        raise Failure("unreadable", "broken compression")
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
    if status < 300:  # it may have worked, but this is not a chat completion
        return Failure("unreadable", f"status {status}")
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
        except (ValueError, TypeError, ArithmeticError):
            return None
    return min(max(0.0, value), _DAY_S) if math.isfinite(value) else None


_DAY_S = 86_400.0


def strict_json(text: str) -> Any:
    """JSON without repeated keys, which could hide a second verdict, and without numbers or letters that nothing else can read.

    Refused with a ValueError: NaN, infinity (also as 1e309), integers of more than 18 digits, half a surrogate pair.
    """
    value = json.loads(
        text, parse_constant=_refuse_constant, parse_float=_float, parse_int=_int, object_pairs_hook=_refuse_repeats
    )
    if "\\ud" in text.lower():  # UnicodeEncodeError is a ValueError
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("a number is too large")
    return value


def _int(digits: str) -> int:
    if len(digits) > 18:
        raise ValueError("a number is too large")
    return int(digits)


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key is repeated")
    return values


def parse(body: bytes) -> Reply:
    """A chat completion with one choice. A busy service sends blank lines and `: keep-alive` comments before it."""
    try:
        completion = strict_json(_without_keep_alives(body.decode("utf-8")))
        [choice] = completion["choices"]
        message, model, fingerprint = choice["message"], completion["model"], completion.get("system_fingerprint")
        content, reason = message["content"], choice.get("finish_reason") or ""
        usage = _usage(completion.get("usage"))
        is_completion = completion.get("object", "chat.completion") == "chat.completion" and not completion.get("error")
        is_answer = message.get("role", "assistant") == "assistant" and not message.get("tool_calls") and not choice.get("index")
    except UnicodeDecodeError:
        raise Failure("unreadable", "the body is not UTF-8") from None
    except (ValueError, RecursionError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Failure("unreadable", f"no chat completion ({type(error).__name__})") from None
    texts = isinstance(model, str) and isinstance(content, str | None) and isinstance(reason, str)
    if not (texts and is_completion and is_answer):
        raise Failure("unreadable", "no chat completion (types)", usage=usage)
    if fingerprint is not None and not (isinstance(fingerprint, str) and is_name(fingerprint)):
        raise Failure("unreadable", "the fingerprint is malformed", usage=usage)
    return Reply(content or "", model, fingerprint, reason, usage)


def _without_keep_alives(text: str) -> str:
    lines = text.split("\n")
    start = next((n for n, line in enumerate(lines) if line.strip() and not line.startswith(":")), 0)
    return "\n".join(lines[start:])


def is_name(text: str) -> bool:
    """Whether a service's text is a name that may be logged and printed: it could repeat a patient's words instead."""
    return re.fullmatch(r"[\w.:/+@-]{1,100}", text, re.ASCII) is not None


def _usage(counts: Any) -> Usage:
    """The counts, unless one of them is not a whole number."""
    if not isinstance(counts, dict):
        return Usage()
    names = ("prompt_tokens", "completion_tokens", "prompt_cache_hit_tokens")
    prompt, out, hit = (counts.get(name, 0 if name == names[2] else None) for name in names)
    if not (_is_count(prompt) and _is_count(out) and _is_count(hit)):
        return Usage()
    hit = min(hit, prompt)
    return Usage(hit, prompt - hit, out, True)


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and value >= 0
