"""Format: a closed `<think>` first, then an answer a patient can read. 1 is clean.

An answer earns nothing without a chain of thought, without visible text after it, when it only copies its chain or the question,
or when neither is about the question: form without content is the cheapest trick. Deducted from 1.0, down to 0:

    0.5   more `<think>` blocks or stray tags, HTML comments, role names or template markers ("<|im_end|>", "### Response:")
    0.5   a bare JSON verdict or code block instead of sentences
    0.3   the last sentence is incomplete: the answer was truncated
    0.3   invisible characters (zero-width, direction marks)
"""

import re
from dataclasses import dataclass

from medloop.contracts import Score, Span
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import copied_share, is_copied, is_on_topic, rule_score, split_answer, words

MIN_CHAIN, MIN_ANSWER = 8, 5  # words
COPIED = 0.8
_MARKERS = lazy_pattern(
    r"</?think>|<!--|<\|[^|>]{1,40}\|>|\[/?INST\]|<</?SYS>>|</s>|^\s*#{2,}\s*(?:Instruction|Response|Input|指令|回答)\s*[:：]"
    r"|^\s*(?:user|human|assistant|system|用户|助手|系统)\s*[:：]",
    re.IGNORECASE | re.MULTILINE,
)
_MARKER_WORDS = (
    "user", "human", "assistant", "system", "用户", "助手", "系统", "instruction", "response", "input", "指令", "回答",
)  # fmt: skip
_MACHINE = lazy_pattern(r"\s*(?:```|\{\s*\"|\[\s*\{)")
_INVISIBLE = lazy_pattern("[\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]")
_ENDS = frozenset(".!?。！？…)）]】\"”'’」』:：*")
_ITEM = lazy_pattern(r"\n\s*(?:[-*•·]|\d+[.)、])[^\n]*$")  # the last line of a list needs no full stop


@dataclass(frozen=True)
class Format:
    name: str = "format"
    version: str = "1"
    penalty: bool = False

    def score(self, question: str, answer: str) -> Score:
        parts = split_answer(answer)
        chain, visible = parts.chain or "", parts.visible
        if problem := _problem(question, chain, visible):
            return rule_score(self, 0.0, problem)
        closed = parts.chain_start + len(chain)
        marker = _first_marker(answer, parts.chain_start, closed)
        flaws: list[tuple[float, str, re.Match[str] | None]] = []
        if marker:
            flaws.append((0.5, "chat-template markers are left in it", marker))
        if data := _MACHINE.match(visible, closed + len("</think>")):
            flaws.append((0.5, "it is data, not sentences", data))
        if not _is_complete(visible):
            flaws.append((0.3, "its last sentence is incomplete", None))
        if invisible := None if answer.isascii() else _INVISIBLE.search(answer):
            flaws.append((0.3, "it contains invisible characters", invisible))
        value = max(0.0, round(1.0 - sum([weight for weight, _, _ in flaws], 0.0), 3))
        reason = "; ".join(reason for _, reason, _ in flaws)
        spans = tuple(Span(where="answer", start=m.start(), end=m.end(), label="form") for _, _, m in flaws if m)
        return rule_score(self, value, f"The answer is badly formed: {reason}." if flaws else "The answer is well formed.", spans)


def _problem(question: str, chain: str, visible: str) -> str | None:
    """Why the answer earns nothing at all, or None."""
    if len(words(chain)) < MIN_CHAIN:
        return "There is no chain of thought before the answer."
    if len(words(visible)) < MIN_ANSWER:
        return "There is no answer after the chain of thought."
    if is_copied(visible, chain, COPIED) or is_copied(visible, question, COPIED):
        return "The answer only copies its chain or the question."
    if not (is_on_topic(question, chain) or is_on_topic(question, visible) or copied_share(chain, question)):
        return "Neither the chain nor the answer is about the question."
    return None


def _first_marker(answer: str, chain: int, closed: int) -> re.Match[str] | None:
    """The first marker in the chain or after it. Most answers have none of the characters and words that a marker needs."""
    if answer.count("<") == 2 and "[" not in answer:
        lowered = answer.lower()
        if not any(word in lowered for word in _MARKER_WORDS):
            return None
    return _MARKERS.search(answer, chain, closed) or _MARKERS.search(answer, closed + len("</think>"))


def _is_complete(visible: str) -> bool:
    last = visible.rstrip()[-1]
    return last in _ENDS or last.isdigit() or "\U0001f300" <= last <= "\U0001faff" or bool(_ITEM.search(visible))
