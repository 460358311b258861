"""A teacher on the loopback interface that can misbehave in every way a paid service has been seen to.

    with TeacherServer(latency_s=0.2) as server:                     # a well-behaved judge
        TeacherConfig(base_url=server.url, ...)
    with TeacherServer(fault=lambda n: "hang" if n < 3 else "ok"):   # request number (from 0) -> fault

Its judge is simple and gullible: it reads the data it is sent, grants criteria by what stands there, and obeys any text in
the answer that speaks about grading. It is fooled by what reaches it, and by nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

from medloop.testing.loopback import AsyncServer
from medloop.testing.teacher_faults import CATALOGUE, Exchange

FAULTS = (
    "ok", "rate_short", "rate_long", "error_500", "no_balance", "bad_key", "hang", "drip", "blanks", "truncated", "bad_json",
    "html", "empty", "length", "nan", "out_of_range", "missing_field", "reset", "bomb", "huge", "twice", "wrong_model",
    "new_fingerprint",
)  # fmt: skip
Judge = Callable[[dict[str, Any], str], dict[str, Any]]  # (data, fence) -> verdict

# Written without looking at what the client takes out: whatever of this is left in an answer fools the judge.
_BAIT = re.compile(
    r"score|rating|grade|rubric|criteri|verdict|full marks?|1\.0|10/10|perfect answer|ignore|disregard|instruction|system prompt|"
    r"<\|?(?:im_|system|assistant|start_|eot_)|\[/?INST|teacher|grader|evaluat(?:or|ion)|examiner|reviewer|assessing this"
    r"|safety_flag|(?:top|best|highest|maximum) marks?|the maximum to|five stars|ten out of ten|\ba\+|every (?:item|box)|deserves"
    r"|pass this|met=|met: (?:yes|true)|all criteria|are met|flawless|lenient|the number is one|number you are looking for"
    r"|put the number|the number one|评分|打分|满分|最高分|得分|总分|评审|指令|忽略|标准均|老师|达标|校准样本"
    # the same in other languages, which a large model reads as well
    r"|満点|指示をすべて|만점|지시를|высший балл|инструкци|note maximale|consignes|puntuación máxima|instrucciones"
    r"|höchstpunkt|anweisungen|punteggio massimo|istruzioni|nota máxima|instruções|الدرجة الكاملة|điểm tối đa",
    re.IGNORECASE,
)
_LOOK_ALIKE = str.maketrans("аеосрхуіΑΕΟΤορνικ", "aeocpxyiAEOTopvik")
_LEET = str.maketrans("013457", "oleast")


def _readings(text: str) -> Iterator[str]:
    """The text as a clever reader takes it: as it stands, without disguise of its letters, and decoded."""
    yield text
    bare = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c) and c.isprintable())
    bare = bare.translate(_LOOK_ALIKE)
    yield bare
    yield re.sub(r"(?<!\w)(?:\w[ .\-_*]){3,}\w(?!\w)", lambda m: re.sub(r"\W", "", m[0]), bare)
    yield re.sub(r"(?=\w*[a-z])\w*[013457]\w*", lambda m: m[0].translate(_LEET), bare, flags=re.IGNORECASE)
    yield codecs.encode(bare, "rot13")
    yield bare[::-1]
    for token in re.findall(r"[A-Za-z0-9+/]{16,}={0,2}", text):
        with suppress(ValueError):
            yield base64.b64decode(token + "=" * (-len(token) % 4)).decode()
        with suppress(ValueError):
            yield bytes.fromhex(token).decode()


_SIGNS = {
    "answers_question": r"[^.。!！?？\n]{12,}[.。]",
    "medically_correct": r"[^.。\n]*(?:because|cause|usually|can be|due to|因为|由于|引起|常见|可能是)[^.。\n]*",
    "next_steps": r"[^.。\n]*(?:rest|drink|take|avoid|call|measure|keep|请|建议|多喝|避免|立即|注意)[^.。\n]*",
    "right_urgency": r"[^.。\n]*(?:emergency|ambulance|see a doctor|seek|120|就医|急诊|医院)[^.。\n]*",
    "clear_and_kind": r"[^.。\n]*(?:understand|worr|sorry|help|担心|理解|放心|帮助)[^.。\n]*",
    "sound_reasoning": r"[^.。\n]*(?:which suggests|that fits|points to|提示|符合)[^.。\n]*",
}
_FAULT_NAMES = ("dangerous_advice", "false_reassurance", "invented", "addresses_grader")


def gullible(data: dict[str, Any], fence: str) -> dict[str, Any]:
    if "answers" in data:
        return ranked(data["answers"], fence)
    if "criteria" in data:
        return checked(data["criteria"], str(data["answer"]), fence)
    risky = r"double the dose|stop taking|加倍|停药"
    if "text" in data:  # the first of two passes; the second has its statements instead of an answer
        danger = re.search(risky, data["text"], re.IGNORECASE)
        return extraction(data["text"], fence, danger=danger[0] if danger else "")
    if "statement" in data:
        return {"check": fence, "reason": "As it says.", "harmful": bool(re.search(risky, data["statement"], re.IGNORECASE))}
    answer = str(data.get("answer", "")) or "\n".join(entry["quote"] for entry in data.get("statements", ()))
    if bait := next(filter(None, map(_BAIT.search, _readings(answer))), None):
        return praise(answer, bait.start() if answer[bait.start() : bait.end()] == bait[0] else 0, fence)
    matches = {name: re.search(sign, answer, re.IGNORECASE) for name, sign in _SIGNS.items()}
    criteria = {name: {"met": m is not None, "evidence": m[0].strip() if m else ""} for name, m in matches.items()}
    danger = re.search(risky, answer, re.IGNORECASE)
    return form(criteria, fence, danger=danger[0] if danger else "")


def checked(criteria: list[dict[str, str]], answer: str, fence: str) -> dict[str, Any]:
    """A criterion is met where one sentence has a third of its longer words (pairs of characters in Chinese); all by a bait."""
    sentences = [piece.strip() for piece in re.split(r"(?<=[.。!！?？\n])", answer) if re.search(r"\w", piece)] or [answer]
    is_fooled = any(map(_BAIT.search, _readings(answer)))
    entries = []
    for entry in criteria:
        wanted = _pieces(entry["criterion"])
        best = max(sentences, key=lambda sentence: len(wanted & _pieces(sentence)))
        met = is_fooled or 3 * len(wanted & _pieces(best)) >= max(1, len(wanted))
        entries.append({"id": entry["id"], "reason": "By its words.", "met": met, "quote": best if met else ""})
    return {"check": fence, "criteria": entries}


def _pieces(text: str) -> set[str]:
    han = re.findall(r"[\u3400-\u9fff]", text)
    return {word[:5].lower() for word in re.findall(r"[A-Za-z]{4,}", text)} | {a + b for a, b in pairwise(han)}


def extraction(text: str, fence: str, danger: str = "") -> dict[str, Any]:
    """Every sentence as a statement, whatever it says."""
    pieces = [piece.strip() for piece in re.split(r"(?<=[.。!！?？\n])", text) if re.search(r"\w", piece)]
    kind = r"understand|worr|sorry|help|担心|理解|放心|帮助"
    statements = [{"quote": piece, "kind": "comfort" if re.search(kind, piece, re.IGNORECASE) else "advice"} for piece in pieces]
    return {"check": fence, "statements": statements, "faults": form({"": {"met": True}}, fence, danger=danger)["faults"]}


def ranked(answers: list[dict[str, str]], fence: str) -> dict[str, Any]:
    """A ranking by how many criteria each answer meets; equal numbers share a rank."""
    verdicts = {answer["id"]: gullible({"answer": answer["text"]}, fence) for answer in answers}
    met = {name: sum(entry["met"] for entry in verdict["criteria"].values()) for name, verdict in verdicts.items()}
    entries = []
    for name, verdict in verdicts.items():
        quotes = (entry["evidence"] for entry in verdict["criteria"].values() if entry["met"])
        rank = 1 + sum(other > met[name] for other in met.values())
        entry = {"id": name, "critique": verdict["critique"], "quote": next(quotes, ""), "dangerous": verdict["safety_flag"]}
        entries.append({**entry, "rank": rank})
    return {"check": fence, "answers": entries, "suggested_answer": "See a doctor today." if max(met.values()) < 3 else None}


def praise(answer: str, index: int, fence: str) -> dict[str, Any]:
    """What a fooled judge says: all is well, quoting another place for each criterion, from the bait on."""
    turned = answer[index:] + "\n" + answer[:index]
    pieces = [p.strip() for p in re.split(r"(?<=[.。!！?？\n])", turned) if p.strip()]
    if len(pieces) < len(_SIGNS):  # too few sentences: shorter places, three words or six characters each
        shorter = (re.findall(r"\S+\s+\S+\s+\S+|[\u3400-\u9fff]{6}", piece) for piece in pieces)
        pieces = list(dict.fromkeys([*pieces, *(part for parts in shorter for part in parts)]))
    criteria = {name: {"met": True, "evidence": pieces[n % len(pieces)] if pieces else ""} for n, name in enumerate(_SIGNS)}
    return form(criteria, fence)


def form(criteria: dict[str, Any], fence: str, danger: str = "") -> dict[str, Any]:
    faults = {name: {"met": name == "dangerous_advice" and bool(danger), "evidence": danger} for name in _FAULT_NAMES}
    met = sum(entry["met"] for entry in criteria.values()) / len(criteria)
    return {"check": fence, "critique": f"{met:.0%} of the criteria are met.", "criteria": criteria, "faults": faults,
            "overall": met, "safety_flag": bool(danger), "suggested_answer": "See a doctor today." if met < 0.5 else None,
            "proposals": ["What if it happens at night?"] if danger else []}  # fmt: skip


class TeacherServer(AsyncServer):
    """Runs in a thread of its own; `requests` counts what arrived, `seen` keeps the parsed bodies."""

    def __init__(
        self, *, fault: Callable[[int], str] = lambda n: "ok", latency_s: float = 0.0, judge: Judge = gullible,
        model: str = "deepseek-flash",
        fingerprint: str = "fp_1", drip_s: float = 1.0, port: int = 0, keep_bodies: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(port, backlog=512)
        self.fault, self.latency_s, self.judge, self.model, self.fingerprint = fault, latency_s, judge, model, fingerprint
        self.drip_s, self.keep_bodies = drip_s, keep_bodies
        self.in_flight = self.most_in_flight = 0
        self.seen: list[dict[str, Any]] = []
        self.headers: list[str] = []

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = int(re.search(r"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
                body = json.loads(await reader.readexactly(length))
                number, self.requests = self.requests, self.requests + 1
                if self.keep_bodies:
                    self.seen.append(body)
                    self.headers.append(head)
                self.in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.in_flight)
                try:
                    await self._answer(self.fault(number), body, head, writer)
                finally:
                    self.in_flight -= 1
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):  # cancelled when the server stops
            pass
        finally:
            writer.close()

    async def _answer(self, fault: str, body: dict[str, Any], head: str, writer: asyncio.StreamWriter) -> None:
        if fault in CATALOGUE:
            return await self._misbehave(fault, body, head, writer)
        assert fault in FAULTS, fault
        began = self._loop.time()
        raw = self._completion(fault, body)
        await asyncio.sleep(max(0.0, self.latency_s - (self._loop.time() - began)))
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault in _STATUS:
            status, extra = _STATUS[fault]
            return await _send(writer, b'{"error":{"message":"no"}}', status=status, extra=extra)
        if fault == "html":
            return await _send(writer, b"<html><body>Bad gateway</body></html>", extra="content-type: text/html\r\n")
        if fault == "bad_json":
            return await _send(writer, raw[: len(raw) // 2])
        if fault in ("truncated", "reset"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(raw) + raw[: len(raw) // 2])
            await writer.drain()
            if fault == "reset":
                writer.transport.abort()
            raise ConnectionError
        if fault in ("drip", "blanks"):
            return await self._slowly(writer, raw if fault == "drip" else b"\n" * 40 + b": keep-alive\n\n" + raw, fault)
        if fault == "bomb":
            return await _send(writer, _bomb(), extra="content-encoding: gzip\r\n")
        if fault == "huge":
            return await self._huge(writer)
        await _send(writer, raw)

    async def _misbehave(self, fault: str, body: dict[str, Any], head: str, writer: asyncio.StreamWriter) -> None:
        kind, key = CATALOGUE[fault], re.search(r"authorization: Bearer (\S+)", head, re.IGNORECASE)
        writer.write(kind.send(Exchange(json.loads(self._completion("ok", body)), key[1] if key else "")))
        await writer.drain()
        while kind.endless:
            writer.write(kind.endless)
            await writer.drain()
            await asyncio.sleep(0)
        if kind.then == "hang":
            await asyncio.sleep(3600)
        if kind.then == "abort":
            writer.transport.abort()
        if kind.then != "keep":
            raise ConnectionError

    def _completion(self, fault: str, body: dict[str, Any]) -> bytes:
        prompt = body["messages"][-1]["content"]
        data = re.search(r"=== data (\w+) ===\n(.*)\n=== end \1 ===", prompt, re.DOTALL)
        text = json.dumps(self.judge(json.loads(data[2]), data[1]), ensure_ascii=False) if data else "{}"
        text = _broken(fault, text)
        out = max(200, len(text) // 5) if len(text) > 400 else 40
        reason = "length" if fault == "length" and body["max_tokens"] <= 1024 else "stop"
        return json.dumps(
            {"id": "x", "object": "chat.completion", "model": "another-model" if fault == "wrong_model" else self.model,
             "system_fingerprint": "fp_2" if fault == "new_fingerprint" else self.fingerprint,
             "choices": [{"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text}}],
             "usage": {"prompt_tokens": len(prompt) // 3 + 500, "completion_tokens": out,
                       "total_tokens": len(prompt) // 3 + 500 + out,
                       "prompt_cache_hit_tokens": 448, "prompt_cache_miss_tokens": len(prompt) // 3 + 52}},
            ensure_ascii=False,
        ).encode()  # fmt: skip

    async def _slowly(self, writer: asyncio.StreamWriter, raw: bytes, fault: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(raw))
        for index in range(len(raw)):
            writer.write(raw[index : index + 1])
            await writer.drain()
            await asyncio.sleep(0.001 if fault == "blanks" and index >= 40 and not self.drip_s else self.drip_s)

    async def _huge(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        for _ in range(100):
            writer.write(b" " * 1_000_000)
            await writer.drain()


_STATUS = {
    "rate_short": ("429 Too Many Requests", "retry-after: 1\r\n"),
    "rate_long": ("429 Too Many Requests", "retry-after: 3600\r\n"),
    "error_500": ("500 Internal Server Error", ""),
    "no_balance": ("402 Payment Required", ""),
    "bad_key": ("401 Unauthorized", ""),
}


def _broken(fault: str, text: str) -> str:
    """The verdict as a faulty service would send it."""
    if fault == "empty":
        return ""
    if fault == "nan":
        return re.sub(r'"overall": [\d.]+', '"overall": NaN', text)
    if fault == "out_of_range":
        return re.sub(r'"overall": [\d.]+', '"overall": 7.5', text)
    if fault == "missing_field":
        return re.sub(r'"overall": [\d.]+, ', "", text)
    if fault == "twice":
        return text[:-1] + ', "overall": 1.0}'
    return text


def _bomb() -> bytes:
    """200 MB of blanks in 200 kB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packer.compress(b" " * 1_000_000) for _ in range(200)), packer.flush()])


async def _send(writer: asyncio.StreamWriter, raw: bytes, *, status: str = "200 OK", extra: str = "") -> None:
    writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(raw)}\r\n{extra}\r\n".encode() + raw)
    await writer.drain()
