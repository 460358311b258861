"""Context passages in a prompt: numbered, before the last question, within the budget of tokens.

    prompt = fit_with_context(tokenizer, messages, passages, max_length=256)
    prompt.token_ids, prompt.shown                          # what the model reads, and the passages as they stand in it

The question decides the language of the words around the passages. The question is never shortened for a passage: passages get
the tokens that it leaves. The first passage that does not fit is cut at a word, ends with a mark that says so, and is the last.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from medloop.contracts import Message
from medloop.lexicon.language import detect_language
from medloop.models.context_limits import ContextLimits
from medloop.models.template import encode_example, encode_prompt, shorter, tokenise

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
MIN_CHARACTERS = 20  # of a passage that is cut; fewer would say nothing
TEMPLATES = {  # words before the passages, before the question, and after a passage that was cut
    "en": ("Answer the question with the help of these passages.", "Question: ", " … [truncated]"),
    "zh": ("请参考以下资料回答问题。", "问题：", "……［已截断］"),
}


@dataclass(frozen=True)
class ContextPrompt:
    """A prompt as token ids; `shown` are its passages as the model reads them, `left_out` is how many did not fit."""

    token_ids: tuple[int, ...]
    messages: tuple[Message, ...]
    shown: tuple[str, ...] = ()
    left_out: int = 0
    truncated: bool = False


def fit_with_context(
    tokenizer: Any, messages: Sequence[Message], passages: Sequence[str], max_length: int
) -> ContextPrompt | None:
    """The prompt with as much of the passages as fits into `max_length` tokens; None when even the question does not fit.

    Old messages are left out only for the question's sake, as without passages.
    """
    for remaining, _ in shorter(messages):
        token_ids = encode_prompt(tokenizer, remaining)
        if len(token_ids) <= max_length:
            bare = ContextPrompt(tuple(token_ids), tuple(remaining), (), len(passages))
            return _fill(tokenizer, bare, passages, max_length) if passages else bare
    return None


def fit_answers(
    tokenizer: Any, messages: Sequence[Message], passages: Sequence[str], answers: Sequence[str], *, limits: ContextLimits,
    max_length: int,
) -> ContextPrompt | None:  # fmt: skip
    """The prompt of a training example: what `fit_with_context` leaves of it beside the longest answer; None without passages.

    The same `limits` give the same prompt as in RL and prediction, unless an answer needs the room.
    """
    passages = passages[: limits.top_k]
    if not passages:
        return None
    last = messages[-1]
    examples = [encode_example(tokenizer, [last, Message(role="assistant", content=answer)]) for answer in answers]
    longest = max(sum(example.completion_mask) for example in examples if example is not None)
    prompt = fit_with_context(tokenizer, messages, passages, min(limits.max_prompt, max_length - longest))
    return prompt if prompt is not None and prompt.shown else None


def with_context(messages: Sequence[Message], passages: Sequence[str]) -> tuple[Message, ...]:
    """The messages with the passages before the last question; unchanged without passages."""
    if not passages:
        return tuple(messages)
    last = messages[-1]
    heading, question, _ = TEMPLATES[_language(last.content)]
    numbered = "\n\n".join(f"[{number}] {passage}" for number, passage in enumerate(passages, start=1))
    return (*messages[:-1], last.model_copy(update={"content": f"{heading}\n\n{numbered}\n\n{question}{last.content}"}))


def _fill(tokenizer: Any, bare: ContextPrompt, passages: Sequence[str], max_length: int) -> ContextPrompt:
    """Passages in their order until one does not fit; that one is cut."""
    best, shown = bare, list[str]()
    for passage in (passage.strip() for passage in passages):
        prompt = _with(tokenizer, bare, [*shown, passage], len(passages), max_length)
        if prompt is None:
            return _cut(tokenizer, bare, shown, passage, len(passages), max_length) or best
        best, shown = prompt, [*shown, passage]
    return best


def _with(
    tokenizer: Any, bare: ContextPrompt, shown: Sequence[str], total: int, max_length: int, *, truncated: bool = False
) -> ContextPrompt | None:
    messages = with_context(bare.messages, shown)
    token_ids = encode_prompt(tokenizer, messages)
    if len(token_ids) > max_length:
        return None
    return ContextPrompt(tuple(token_ids), messages, tuple(shown), total - len(shown), truncated)


def _cut(
    tokenizer: Any, bare: ContextPrompt, shown: Sequence[str], passage: str, total: int, max_length: int
) -> ContextPrompt | None:
    """The longest start of a passage that fits, with the mark at its end; None when hardly anything would be left."""
    mark = TEMPLATES[_language(bare.messages[-1].content)][2]
    spare = max_length - len(bare.token_ids)
    most = min(len(passage), len(passage) * spare // max(len(tokenise(tokenizer, passage)), 1) + 1) + 64
    low, high, best = 0, min(most, len(passage) - 1), None
    while low < high:  # the length in characters, by halves; every try is counted by the tokenizer
        middle = (low + high + 1) // 2
        start = _whole_words(passage, middle)
        prompt = _with(tokenizer, bare, [*shown, start + mark], total, max_length, truncated=True)
        if prompt is None:
            high = middle - 1
        else:
            low = middle
            best = prompt if len(start) >= MIN_CHARACTERS else best
    return best


def _whole_words(text: str, length: int) -> str:
    """The first `length` characters, without a word that was cut; Chinese has no spaces and is cut anywhere."""
    start = text[:length]
    if length < len(text) and text[length].isalnum() and not _HAN.match(text[length]):
        start = re.sub(r"[a-zA-Z0-9\u00c0-\u024f'-]+$", "", start)
    return start.rstrip()


def _language(text: str) -> str:
    """A text with some Chinese is for a reader of Chinese."""
    return "zh" if detect_language(text) in ("zh", "mixed") else "en"
