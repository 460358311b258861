"""Format: a closed `<think>` first, then an answer a patient can read. 1 is clean.

Nothing is earned without a chain that says something, without an answer after it, by an answer that only copies its chain or
the question, or when neither speaks of what was asked: form without content is the cheapest trick of all.
From 1.0 is taken, down to 0:

    0.5   more `<think>` blocks or stray tags, HTML comments, role names or template marks ("<|im_end|>", "### Response:")
    0.5   a bare JSON verdict or code block in place of sentences
    0.3   the last sentence does not end: the answer was cut off
    0.3   signs that nobody sees (zero-width, direction marks)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from medloop.contracts import Score, Span
from medloop.reward.answer_text import copied_share, copies, on_topic, split_answer, verdict, words

MIN_CHAIN, MIN_ANSWER = 8, 5  # words
COPIED = 0.8
_MARKS = re.compile(
    r"</?think>|<!--|<\|[^|>]{1,40}\|>|\[/?INST\]|<</?SYS>>|</s>|^\s*#{2,}\s*(?:Instruction|Response|Input|指令|回答)\s*[:：]"
    r"|^\s*(?:user|human|assistant|system|用户|助手|系统)\s*[:：]",
    re.IGNORECASE | re.MULTILINE,
)
_MARK_WORDS = ("user", "human", "assistant", "system", "用户", "助手", "系统", "instruction", "response", "input", "指令", "回答")
_MACHINE = re.compile(r"\s*(?:```|\{\s*\"|\[\s*\{)")
_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]")
_ENDS = frozenset(".!?。！？…)）]】\"”'’」』:：*")
_ITEM = re.compile(r"\n\s*(?:[-*•·]|\d+[.)、])[^\n]*$")  # the last line of a list needs no full stop


@dataclass(frozen=True)
class Format:
    name: str = "format"
    version: str = "1"
    penalty: bool = False

    def score(self, question: str, answer: str) -> Score:
        parts = split_answer(answer)
        chain, visible = parts.chain or "", parts.visible
        if problem := _nothing(question, chain, visible):
            return verdict(self, 0.0, problem)
        closed = parts.chain_start + len(chain)
        marks = _marks(answer, parts.chain_start, closed)
        flaws: list[tuple[float, str, re.Match[str] | None]] = []
        if marks:
            flaws.append((0.5, "marks of the template are left in it", marks))
        if data := _MACHINE.match(visible, closed + len("</think>")):
            flaws.append((0.5, "it is data, not sentences", data))
        if not _ends(visible):
            flaws.append((0.3, "its last sentence does not end", None))
        if unseen := None if answer.isascii() else _UNSEEN.search(answer):
            flaws.append((0.3, "it holds signs that nobody sees", unseen))
        value = max(0.0, round(1.0 - sum([weight for weight, _, _ in flaws], 0.0), 3))
        reason = "; ".join(reason for _, reason, _ in flaws)
        spans = tuple(Span(where="answer", start=m.start(), end=m.end(), label="form") for _, _, m in flaws if m)
        return verdict(self, value, f"The answer is badly formed: {reason}." if flaws else "The answer is well formed.", spans)


def _nothing(question: str, chain: str, visible: str) -> str | None:
    """Why the form earns nothing at all, if so."""
    if len(words(chain)) < MIN_CHAIN:
        return "There is no chain of thought before the answer."
    if len(words(visible)) < MIN_ANSWER:
        return "There is no answer after the chain of thought."
    if copies(visible, chain, COPIED) or copies(visible, question, COPIED):
        return "The answer only copies its chain or the question."
    if not (on_topic(question, chain) or on_topic(question, visible) or copied_share(chain, question)):
        return "Neither chain nor answer speaks of what was asked."
    return None


def _marks(answer: str, chain: int, closed: int) -> re.Match[str] | None:
    """The first mark in the chain or after it. Most answers hold none of the signs and words that a mark needs."""
    if answer.count("<") == 2 and "[" not in answer:
        lowered = answer.lower()
        if not any(word in lowered for word in _MARK_WORDS):
            return None
    return _MARKS.search(answer, chain, closed) or _MARKS.search(answer, closed + len("</think>"))


def _ends(visible: str) -> bool:
    last = visible.rstrip()[-1]
    return last in _ENDS or last.isdigit() or "\U0001f300" <= last <= "\U0001faff" or bool(_ITEM.search(visible))
