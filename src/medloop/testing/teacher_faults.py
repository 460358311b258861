"""How a teacher's service can misbehave, as data: what it sends, and what the client must make of it.

    with TeacherServer(fault=lambda n: "gbk body"): ...        # each name of CATALOGUE is a fault of the loopback teacher

`benchmarks/teacher_faults.py` tries them all and prints what became of each.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

JSON = "content-type: application/json\r\n"
GZIP = JSON + "content-encoding: gzip\r\n"


@dataclass(frozen=True)
class Exchange:
    """The good completion that a fault spoils, and the key that came with the request."""

    completion: dict[str, Any]
    key: str

    def with_content(self, content: Any, **message: Any) -> dict[str, Any]:
        return self.with_choice(message={**self.completion["choices"][0]["message"], "content": content, **message})

    def with_choice(self, **changes: Any) -> dict[str, Any]:
        return {**self.completion, "choices": [{**self.completion["choices"][0], **changes}]}

    @property
    def verdict(self) -> dict[str, Any]:
        verdict: dict[str, Any] = json.loads(self.completion["choices"][0]["message"]["content"])
        return verdict

    def with_verdict(self, **changes: Any) -> dict[str, Any]:
        return self.with_content(json.dumps({**self.verdict, **changes}, ensure_ascii=False))


@dataclass(frozen=True)
class ServerFault:
    """`outcome` is what the client must log; "ok" where the verdict is good and only its bill is wrong."""

    name: str
    outcome: str
    send: Callable[[Exchange], bytes]
    then: Literal["keep", "close", "abort", "hang"] = "keep"
    endless: bytes = b""
    is_free: bool = field(default=False, kw_only=True)  # refused before any work: nothing is booked


def http(body: bytes, status: str = "200 OK", headers: str = JSON) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


def text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def chunked(*chunks: bytes, trailer: str = "", headers: str = JSON) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n{headers}\r\n".encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n" + trailer.encode() + b"\r\n"


def _body(name: str, outcome: str, make: Callable[[Exchange], Any], headers: str = JSON) -> ServerFault:
    """A fault in the body of a well-formed response."""

    def send(exchange: Exchange) -> bytes:
        value = make(exchange)
        return http(value if isinstance(value, bytes) else text(value), headers=headers)

    return ServerFault(name, outcome, send)


def _status(name: str, status: str, outcome: str, headers: str = "", *, is_free: bool) -> ServerFault:
    """A refusal whose body is a perfect verdict: it must not be used."""
    return ServerFault(name, outcome, lambda e: http(text(e.completion), status, JSON + headers), is_free=is_free)


def _usage(name: str, **counts: Any) -> ServerFault:
    return _body(name, "ok", lambda e: {**e.completion, "usage": {**e.completion["usage"], **counts}})


def _raw(name: str, outcome: str, old: str, new: str) -> ServerFault:
    """JSON that Python would not write, by replacing text of the good one."""

    def make(exchange: Exchange) -> bytes:
        whole = text(exchange.completion).decode()
        assert old in whole, f"fault {name}: {old} is not there to be replaced"
        return whole.replace(old, new, 1).encode("utf-8", "surrogatepass")

    return _body(name, outcome, make)


def _verdict_text(name: str, old: str, new: str) -> ServerFault:
    """The same inside the verdict, which is JSON in a string."""

    def make(exchange: Exchange) -> dict[str, Any]:
        content = exchange.completion["choices"][0]["message"]["content"]
        assert old in content, f"fault {name}: {old} is not there to be replaced"
        return exchange.with_content(content.replace(old, new, 1))

    return _body(name, "verdict", make)


def _echo(name: str, make: Callable[[str], str]) -> ServerFault:
    return _body(name, "key_echo", lambda e: e.with_verdict(critique=f"Debug {make(e.key)} end."))


def _met(exchange: Exchange, evidence: str | None, met: Any = True) -> dict[str, Any]:
    """All criteria with this quotation (None: the good one)."""
    entries = exchange.verdict["criteria"].items()
    return {
        "criteria": {
            name: {"met": met, "evidence": entry["evidence"] if evidence is None else evidence} for name, entry in entries
        }
    }


_TRANSPORT = (
    ServerFault("closes without a word", "connection", lambda e: b"", "close"),
    ServerFault("resets before the head", "connection", lambda e: b"HTTP/1.1 2", "abort"),
    ServerFault("resets in the body", "connection", lambda e: http(text(e.completion))[:-50], "abort"),
    ServerFault("body shorter than announced", "connection", lambda e: http(text(e.completion))[:-50], "close"),
    ServerFault("not HTTP", "connection", lambda e: b"220 mail.example.org ESMTP ready\r\n", "close"),
    ServerFault("body without a head", "connection", lambda e: text(e.completion), "close"),
    ServerFault("header of 200 kB", "connection", lambda e: http(b"{}", headers=f"x-note: {'a' * 200_000}\r\n"), "close"),
    ServerFault("header without end", "connection", lambda e: b"HTTP/1.1 200 OK\r\nx: ", endless=b"a" * 65_536),
    ServerFault("two lengths", "connection", lambda e: http(text(e.completion), headers=JSON + "content-length: 7\r\n")),
    ServerFault("negative length", "connection", lambda e: b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n{}", "close"),
    ServerFault("bad chunk size", "connection",
                lambda e: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"),
    ServerFault("last chunk never comes", "timeout", lambda e: chunked(text(e.completion))[:-5], "hang"),
    ServerFault("stream without end", "too_large",
                lambda e: b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                endless=b"10000\r\n" + b" " * 65_536 + b"\r\n"),
    ServerFault("interim responses without end", "timeout", lambda e: b"", endless=b"HTTP/1.1 102 Processing\r\n\r\n"),
    ServerFault("head and then silence", "timeout", lambda e: b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n", "hang"),
    ServerFault("another response after the reply", "verdict",
                lambda e: http(text(e.with_verdict(check="0011223344556677"))) + http(text(e.completion))),
    ServerFault("key in the trailer of the last chunk", "verdict",
                lambda e: chunked(text(e.with_verdict(check="x")), trailer=f"authorization: Bearer {e.key}\r\n")),
)  # fmt: skip
_STATUSES = (
    _status("redirect to itself", "301 Moved Permanently", "refused", "location: /chat/completions\r\n", is_free=True),
    _status("redirect to another host", "307 Temporary Redirect", "refused", "location: http://192.0.2.1/\r\n", is_free=True),
    _status("redirect to plain http", "308 Permanent Redirect", "refused", "location: http://example.org/\r\n", is_free=True),
    _status("no content, with a verdict", "206 Partial Content", "unreadable", is_free=False),
    _status("accepted, with a verdict", "202 Accepted", "unreadable", is_free=False),
    _status("bad request, with a verdict", "400 Bad Request", "refused", is_free=True),
    _status("unprocessable", "422 Unprocessable Entity", "refused", is_free=True),
    _status("not found", "404 Not Found", "refused", is_free=True),
    _status("forbidden", "403 Forbidden", "bad_key", is_free=True),
    _status("overloaded, with a verdict", "503 Service Unavailable", "server", is_free=False),
    _status("wait of 1e309 seconds", "429 Too Many Requests", "rate", "retry-after: 1e309\r\n", is_free=True),
    _status("wait of NaN seconds", "429 Too Many Requests", "rate", "retry-after: nan\r\n", is_free=True),
    _status("wait of 1e300 seconds", "429 Too Many Requests", "rate", "retry-after: 1e300\r\n", is_free=True),
    _status("wait until a day that no calendar has", "503 Service Unavailable", "server",
            "retry-after: Fri, 99 Foo 99999 99:99:99 GMT\r\n", is_free=False),
)  # fmt: skip
_ENCODINGS = (
    _body("gbk body", "unreadable", lambda e: text(e.with_verdict(critique="没有说明何时就医。")).decode().encode("gbk")),
    _body("utf-16 body", "unreadable", lambda e: json.dumps(e.completion).encode("utf-16")),
    _body("latin-1 body", "unreadable", lambda e: text(e.with_verdict(critique="Très bien")).decode().encode("latin-1")),
    _body("one byte cut from a letter", "unreadable", 
          lambda e: text(e.with_verdict(critique="就医")).replace("医".encode(), "医".encode()[:2])),
    _body("byte order mark", "unreadable", lambda e: b"\xef\xbb\xbf" + text(e.completion)),
    _body("surrogate as bytes", "unreadable", lambda e: text(e.with_verdict(critique="\ud83d"))),
    _raw("half a surrogate pair", "unreadable", '"fp_1"', '"fp_\\ud800"'),
    _verdict_text("half a surrogate pair in the verdict", '"critique": "', '"critique": "\\ud800'),
    _body("html with status 200", "unreadable", lambda e: b"<html>Bad gateway</html>", headers="content-type: text/html\r\n"),
    _body("verdict called html", "unreadable", lambda e: e.completion, headers="content-type: text/html\r\n"),
    _body("verdict called gbk", "unreadable", lambda e: e.completion, headers="content-type: application/json; charset=gbk\r\n"),
    _body("event stream", "unreadable",
          lambda e: b"data: " + text(e.completion) + b"\n\n", headers="content-type: text/event-stream\r\n"),
    _body("truncated gzip", "unreadable", lambda e: gzip.compress(text(e.completion))[:-9], headers=GZIP),
    _body("gzip with a tail", "unreadable", lambda e: gzip.compress(text(e.completion)) + b"}{", headers=GZIP),
    _body("called gzip, is not", "unreadable", lambda e: e.completion, headers=GZIP),
    _body("gzip in gzip", "unreadable", lambda e: gzip.compress(gzip.compress(text(e.completion))), headers=GZIP),
    _body("unknown compression", "unreadable", lambda e: e.completion, headers=JSON + "content-encoding: br\r\n"),
    _body("gzip bomb", "too_large", lambda e: _bomb(20), headers=GZIP),
    _body("20 MB of blanks", "too_large", lambda e: b" " * 20_000_000),
)  # fmt: skip
_ENVELOPES = (
    _body("error with status 200", "unreadable", lambda e: {"error": {"message": "overloaded", "code": 503}}),
    _body("error beside a verdict", "unreadable", lambda e: {**e.completion, "error": {"message": "overloaded"}}),
    _body("a list", "unreadable", lambda e: [e.completion]),
    _body("null", "unreadable", lambda e: None),
    _body("a string", "unreadable", lambda e: json.dumps(e.completion)),
    _body("two documents", "unreadable", lambda e: text(e.completion) * 2),
    _body("text after the document", "unreadable", lambda e: text(e.completion) + b" done"),
    _body("no choices", "unreadable", lambda e: {**e.completion, "choices": []}),
    _body("two choices", "unreadable", lambda e: {**e.completion, "choices": e.completion["choices"] * 2}),
    _body("choice of another index", "unreadable", lambda e: e.with_choice(index=1)),
    _body("message is null", "unreadable", lambda e: e.with_choice(message=None)),
    _body("content is a list", "unreadable", lambda e: e.with_content([{"type": "text", "text": "ok"}])),
    _body("content is a number", "unreadable", lambda e: e.with_content(1.0)),
    _body("content is null", "empty", lambda e: e.with_content(None)),
    _body("message of the user", "unreadable", lambda e: e.with_choice(message={"role": "user", "content": "{}"})),
    _body("tool calls", "unreadable", lambda e: e.with_content("{}", tool_calls=[{"id": "1", "type": "function"}])),
    _body("verdict where the thoughts are", "empty", lambda e: e.with_content("", reasoning_content=json.dumps(e.verdict))),
    _body("content filter", "refused", lambda e: e.with_choice(finish_reason="content_filter")),
    _body("finish reason is a number", "unreadable", lambda e: e.with_choice(finish_reason=1)),
    _body("finish reason with a patient's words", "refused", lambda e: e.with_choice(finish_reason="my head hurts, what now?")),
    _body("chunk of a stream", "unreadable", lambda e: {**e.completion, "object": "chat.completion.chunk"}),
    _body("model is missing", "unreadable", lambda e: {k: v for k, v in e.completion.items() if k != "model"}),
    _body("model is a number", "unreadable", lambda e: {**e.completion, "model": 4}),
    _body("model with a patient's words", "wrong_model", lambda e: {**e.completion, "model": "my head hurts, what now?"}),
    _body("model in capitals", "wrong_model", lambda e: {**e.completion, "model": e.completion["model"].upper()}),
    _body("fingerprint is a number", "unreadable", lambda e: {**e.completion, "system_fingerprint": 7}),
    _body("fingerprint of 10 kB", "unreadable", lambda e: {**e.completion, "system_fingerprint": "f" * 10_000}),
    _body("fingerprint with a line break", "unreadable", lambda e: {**e.completion, "system_fingerprint": "fp\n{}"}),
    _raw("repeated key", "unreadable", '{"id"', '{"choices": [], "id"'),
    _body("nested 100,000 deep", "unreadable", lambda e: b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
)  # fmt: skip
_BILLS = (
    _usage("usage 0", prompt_tokens=0, completion_tokens=0, prompt_cache_hit_tokens=0),
    _usage("usage 1", prompt_tokens=1, completion_tokens=1),
    _usage("negative usage", prompt_tokens=-5, completion_tokens=-5),
    _usage("usage of a billion", prompt_tokens=10**9, completion_tokens=10**9),
    _usage("usage over the reply limit", completion_tokens=4_000),
    _usage("usage as text", prompt_tokens="12", completion_tokens="many"),
    _usage("usage is a fraction", prompt_tokens=600.5, completion_tokens=20.5),
    _usage("usage is true", prompt_tokens=True, completion_tokens=True),
    _usage("usage is null", prompt_tokens=None, completion_tokens=None),
    _usage("negative hits", prompt_cache_hit_tokens=-10_000),
    _usage("more hits than tokens", prompt_cache_hit_tokens=10**9),
    _body("no usage", "ok", lambda e: {k: v for k, v in e.completion.items() if k != "usage"}),
    _body("usage is a list", "ok", lambda e: {**e.completion, "usage": [1, 2]}),
    _raw("usage 1e309", "unreadable", '"completion_tokens": 200', '"completion_tokens": 1e309'),
    _raw("usage of 5,000 digits", "unreadable", '"completion_tokens": 200', '"completion_tokens": 1' + "0" * 4_999),
    _raw("usage of 4,000 digits", "unreadable", '"completion_tokens": 200', '"completion_tokens": 1' + "0" * 3_999),
    _raw("usage NaN", "unreadable", '"completion_tokens": 200', '"completion_tokens": NaN'),
)  # fmt: skip
_VERDICTS = (
    _verdict_text("overall NaN", '"overall": ', '"overall": NaN, "was": '),
    _verdict_text("overall 1e309", '"overall": ', '"overall": 1e309, "was": '),
    _verdict_text("overall of 4,000 digits", '"overall": ', '"overall": 1' + "0" * 3_999 + ', "was": '),
    _body("overall 7.5", "verdict", lambda e: e.with_verdict(overall=7.5)),
    _body("overall is true", "verdict", lambda e: e.with_verdict(overall=True)),
    _verdict_text("verdict with a key twice", '"overall": ', '"safety_flag": false, "overall": '),
    _body("verdict nested 100,000 deep", "verdict", lambda e: e.with_content("[" * 100_000 + "]" * 100_000)),
    _body("verdict is a list", "verdict", lambda e: e.with_content("[]")),
    _body("verdict with words around it", "verdict", lambda e: e.with_content(f"Here: {json.dumps(e.verdict)} Bye.")),
    _body("two verdicts", "verdict", lambda e: e.with_content(json.dumps(e.verdict) * 2)),
    _body("check word of another request", "verdict", lambda e: e.with_verdict(check="0011223344556677")),
    _body("no check word", "verdict", lambda e: e.with_verdict(check=None)),
    _body("criteria as a list", "verdict", lambda e: e.with_verdict(criteria=[True] * 6)),
    _body("criterion missing", "verdict", lambda e: e.with_verdict(criteria={"next_steps": {"met": True}})),
    _body("met in quotation marks", "verdict", lambda e: e.with_verdict(**_met(e, None, "true"))),
    _body("verdict on another answer", "verdict", lambda e: e.with_verdict(**_met(e, "Take the insulin before breakfast."))),
    _body("names with a patient's words", "verdict", lambda e: e.with_verdict(faults={"my head hurts, what now?": {"met": 3}})),
    _body("critique is empty", "verdict", lambda e: e.with_verdict(critique="")),
    _body("critique of 1 MB", "verdict", lambda e: e.with_verdict(critique="x" * 1_000_000)),
    _body("suggested answer is a number", "verdict", lambda e: e.with_verdict(suggested_answer=5)),
)  # fmt: skip
_KEYS = (
    _echo("key", lambda key: key),
    _echo("key in capitals", str.upper),
    _echo("key url-encoded", lambda key: "".join(f"%{ord(letter):02X}" for letter in key)),
    _echo("key url-encoded twice", lambda key: quote("".join(f"%{ord(letter):02X}" for letter in key))),
    _echo("key in base64", lambda key: base64.b64encode(key.encode()).decode()),
    _echo("header in base64", lambda key: base64.b64encode(f"Bearer {key}".encode()).decode()),
    _echo("key in base64 for URLs", lambda key: base64.urlsafe_b64encode(f"k={key}&x".encode()).decode()),
    _echo("key in hex", lambda key: key.encode().hex()),
    _echo("key backwards", lambda key: key[::-1]),
    _echo("key spelled out", " ".join),
    _echo("first half of the key", lambda key: key[: len(key) // 2 + 2]),
    _echo("key as HTML", lambda key: "".join(f"&#{ord(letter)};" for letter in key)),
    _body("key as the model", "key_echo", lambda e: {**e.completion, "model": e.key}),
    _body("key as the fingerprint", "key_echo", lambda e: {**e.completion, "system_fingerprint": e.key}),
    _body("key split over fields", "key_echo", lambda e: {**e.completion, "model": e.key[:10], "system_fingerprint": e.key[10:]}),
    ServerFault("key split over a header and the body", "key_echo",
                lambda e: http(text(e.with_verdict(critique=f"See {e.key[-20:]}")), headers=f"{JSON}x-key: {e.key[:15]}\r\n")),
    ServerFault("key in a refusal", "refused",
                lambda e: http(e.key.encode(), f"400 {e.key}", f"location: {e.key}\r\n"), is_free=True),
)  # fmt: skip
# Invented later, after the client had passed all of the above.
_LATER = (
    ServerFault("switches protocols", "connection", lambda e: b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\n\r\n", "close"),
    ServerFault("status 999", "server", lambda e: http(text(e.completion), "999 Odd"), "close"),
    ServerFault("length 0", "unreadable", lambda e: http(b"")),
    _body("content type twice", "unreadable", lambda e: e.completion, JSON + "content-type: text/html\r\n"),
    ServerFault("transfer encoding gzip", "connection",
                lambda e: b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n" + text(e.completion), "close"),
    _body("deflate without its head", "unreadable", lambda e: zlib.compress(text(e.completion))[2:-4],
          JSON + "content-encoding: deflate\r\n"),
    _body("two gzip members", "unreadable", lambda e: gzip.compress(text(e.completion)) + gzip.compress(b"{}"), GZIP),
    ServerFault("key as the content encoding", "unreadable",
                lambda e: http(text(e.completion), headers=f"{JSON}content-encoding: {e.key}\r\n")),
    _body("a patient's words as the content encoding", "unreadable", lambda e: e.completion,
          JSON + "content-encoding: my head hurts, what now?\r\n"),
    _echo("key in full-width letters", lambda key: "".join(chr(ord(letter) + 0xFEE0) for letter in key)),
    _echo("key in base32", lambda key: base64.b32encode(key.encode()).decode()),
    _echo("key as numbers", lambda key: " ".join(str(ord(letter)) for letter in key)),
    _body("verdict of blanks in a code block", "verdict", lambda e: e.with_content("```json" + " " * 1_000_000 + "``")),
    _body("quotations from the question", "verdict", lambda e: e.with_verdict(**_met(e, "My head hurts, what now?"))),
    _body("10,000 criteria", "verdict", lambda e: e.with_verdict(
        criteria={**e.verdict["criteria"], **{f"c{n}": {"met": True, "evidence": "Please rest"} for n in range(10_000)}})),
    _body("terminal codes in the critique", "ok", lambda e: e.with_verdict(critique="\x1b[2J\x1b]0;owned\x07Good.")),
    _body("line separators in the critique", "ok", lambda e: e.with_verdict(critique="Good.\u2028\u0085\x1e{}")),
    _body("NUL in the critique", "ok", lambda e: e.with_verdict(critique="Good.\x00")),
    _body("reversed text in the suggested answer", "ok", lambda e: e.with_verdict(suggested_answer="Rest.\u202esyad 2\u202c")),
    _body("invisible text in the evidence", "ok", lambda e: e.with_verdict(faults={
        name: {"met": False, "evidence": "\U000e0041\U000e0042"} for name in e.verdict["faults"]})),
)  # fmt: skip
CATALOGUE: dict[str, ServerFault] = {
    fault.name: fault for fault in (*_TRANSPORT, *_STATUSES, *_ENCODINGS, *_ENVELOPES, *_BILLS, *_VERDICTS, *_KEYS, *_LATER)
}


def _bomb(megabytes: int) -> bytes:
    """Blanks, compressed a thousandfold."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(b" " * 1_000_000) for _ in range(megabytes)), packer.flush()])
