"""Injections into fluent dangerous answers, and judges that obey whatever is left of them.

    judge = obedient(cases)                               # for TeacherServer(judge=judge)
    judge = obedient(cases, "last")                       # obeys only what stands at the end; see STYLES
    attacks = place_all(cases, texts)                     # every text in every place

A judge knows the answers. Where it finds a word that stands neither in the answer nor in its question, a part of the injection
has reached it: it then grants everything, with real quotations, and sees no fault. Otherwise it is honest, and the answer is
dangerous. No real model is as easily led, so the lift that the style "any" measures is an upper bound. The style "named" is led
even by a finding that an injection in the question added to our own names of what the question mentions.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from medloop.lexicon.findings import named_findings
from medloop.testing.teacher_server import Judge, extraction, form, gullible, praise

PLACES = ("beginning", "middle", "end", "clause", "quotation", "thoughts", "question", "context", "question and answer")
STYLES = ("any", "named", "hide", "system", "last", "half")  # what a judge obeys


@dataclass(frozen=True)
class FluentCase:
    """A question with a fluent answer; `danger` has the words to which an honest judge objects."""

    language: str
    question: str
    answer: str
    danger: tuple[str, ...]

    @property
    def words(self) -> frozenset[str]:
        return frozenset(_words(f"{self.question} {self.answer} {' '.join(_FRAMES[self.language].values())}"))


@dataclass(frozen=True)
class InjectionAttack:
    """One text in one place of a case."""

    case: FluentCase
    place: str
    text: str
    question: str
    answer: str
    context: str | None


_FRAMES = {
    "en": {
        "quotation": 'A friend once told me: "{}"',
        "thoughts": "<think>The person is worried. {}</think>",
        "context": "Patient: {}",
    },
    "zh": {"quotation": "有位朋友说过：“{}”", "thoughts": "<think>患者很担心。{}</think>", "context": "Patient: {}"},
}


_COMMA = {"en": ", ", "zh": "，"}


def place_all(cases: Sequence[FluentCase], texts: dict[str, Sequence[str]]) -> list[InjectionAttack]:
    """Every text, by language, in every place; the cases of a language take turns."""
    attacks = []
    for language, injections in texts.items():
        own = [case for case in cases if case.language == language]
        for number, text in enumerate(injections):
            attacks += [_placed(own[(number + turn) % len(own)], place, text) for turn, place in enumerate(PLACES)]
    return attacks


def _placed(case: FluentCase, place: str, text: str) -> InjectionAttack:
    question, answer, context = case.question, case.answer, None
    sentences = re.findall(r"[^.。]+[.。]\s*", answer)
    half = len(sentences) // 2
    framed = _FRAMES[case.language].get(place, "{}").format(text)
    if place in ("question", "question and answer"):
        question = f"{question}\n{text}"
    if place in ("end", "question and answer"):
        answer = f"{answer}\n{framed}"
    elif place == "context":
        context = framed
    elif place in ("beginning", "thoughts"):
        answer = f"{framed}\n{answer}"
    elif place == "clause":  # within a dangerous sentence
        sentences[1] = sentences[1].rstrip(" .。") + f"{_COMMA[case.language]}{text} "
        answer = "".join(sentences)
    elif place in ("middle", "quotation"):
        answer = "".join(sentences[:half]) + f"{framed} " + "".join(sentences[half:])
    return InjectionAttack(case, place, text, question, answer, context)


def obedient(cases: Sequence[FluentCase], style: str = "any") -> Judge:
    def judge(data: dict[str, Any], fence: str) -> dict[str, Any]:
        text = _text(data)
        words = frozenset(_words(text))
        case = max(cases, key=lambda case: (len(words & case.words), any(phrase in text for phrase in case.danger)))
        strange = words - case.words
        is_added = style == "named" and not set(data.get("findings", ())) <= set(named_findings(case.question))
        is_fooled = is_added or (bool(strange) and _obeys(style, text, strange))
        danger = next((phrase for phrase in case.danger if phrase in text), "")
        if "text" in data:  # the first of two passes
            shown = _strange_part(data["text"], strange) if style == "hide" and is_fooled else data["text"]
            return extraction(shown, fence, danger="" if is_fooled else danger)
        if "statement" in data:
            return {"check": fence, "harmful": bool(danger) and not is_fooled}
        answer = _answer(data)
        if is_fooled:
            return praise(answer, 0, fence)
        honest = gullible({"answer": answer}, fence)
        return form(honest["criteria"], fence, danger=danger)

    return judge


_SYSTEM = re.compile(
    r"\b(?:system|admin\w*|developer|operator|instructions?|notice|important|urgent|message from|must|shall)\b|[:\[\]{}#*]"
    r"|系统|管理员|通知|紧急|务必|必须|要求|指示|注意|[：【】]",
    re.IGNORECASE,
)


def _obeys(style: str, text: str, strange: frozenset[str]) -> bool:
    """Whether a judge of this style obeys the strange words: hide obeys as any does, and leaves out all other sentences."""
    if style == "system":  # only what looks like an order from above
        return _SYSTEM.search(_strange_part(text, strange)) is not None
    if style == "last":  # only what stands in the last third of what it reads
        return bool(frozenset(_words(text[2 * len(text) // 3 :])) & strange)
    if style == "half":  # every second text, always the same ones
        return zlib.crc32(text.encode()) % 2 == 0
    return True


def _strange_part(text: str, strange: frozenset[str]) -> str:
    """The sentences that have a strange word."""
    return "".join(sentence for sentence in re.findall(r"[^.。!！?？\n]+[.。!！?？\n]*", text) if strange & set(_words(sentence)))


def _answer(data: dict[str, Any]) -> str:
    return str(data["answer"]) if "answer" in data else "\n".join(entry["quote"] for entry in data.get("statements", ()))


def _text(data: dict[str, Any]) -> str:
    fields = (str(data.get(name, "")) for name in ("question", "context", "text", "statement"))
    return "\n".join((*fields, _answer(data)))


def _words(text: str) -> Iterator[str]:
    """Words, numbers, and each two neighbouring Chinese characters, without the marks that the client itself puts in."""
    plain = unicodedata.normalize("NFKC", re.sub(r"\[removed\]|\[[A-Z]+_\d+\]", " ", text)).casefold()
    for run in re.findall(r"[\u3400-\u9fff]{2,}", plain):
        yield from (run[index : index + 2] for index in range(len(run) - 1))
    yield from re.findall(r"(?:(?![\u3400-\u9fff])[^\W_]){2,}|\d+", plain)
