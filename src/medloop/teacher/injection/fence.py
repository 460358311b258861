"""The graded answer as data: what could speak to the grader is taken out before the grader sees it.

Taken out and marked: chat-format tokens, invisible characters, codes, verdicts in JSON, sentences that talk to or about the
grader (`address.py`), also in disguise and in languages that the question does not use (`disguise.py`). What is left is put
into JSON between two lines that carry a random word, which the grader must give back.
"""

from __future__ import annotations

import json
import re
import secrets

from medloop.teacher.injection.address import goes_with_an_attack, speaks_to_grader
from medloop.teacher.injection.disguise import language, scripts, visible, without_codes

VERSION = "2"
MARK = "[removed]"

_SPEAKERS = (
    "system|assistant|user|human|grader|evaluator|judge|instructions?|response|input|model|系统|助手|评审|评分员|裁判|用户"
)
_TOKENS = re.compile(
    r"<\s*[|｜][^<>\n]{0,40}[|｜]\s*>|\[/?(?:INST|SYS|AVAILABLE_TOOLS|TOOL_CALLS)\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>(?:user|model)?"
    r"|<(?:bos|eos|pad|unk|endoftext)>|]]>|<!\[CDATA\["
    rf"|(?:^\s*|#{{1,4}}\s*|^\s*\*\*)(?:{_SPEAKERS})(?:\*\*)?\s*[:：]"
    r"|</?(?:system|assistant|user|human|tool|grader|grading|verdict|data|answer|document|instructions?|scores?)\b[^>\n]{0,60}>"
    r"|<{3,}[^\n]{0,80}>{3,}|-{3,}\s*(?:BEGIN|END)[^\n]{0,60}|={3,}[^\n]{0,80}={3,}",
    re.IGNORECASE | re.MULTILINE,
)
_FENCED = re.compile(r"(```|~~~).{0,4000}?(?:\1|\Z)", re.DOTALL)
_BRACES = re.compile(r"\{[^{}]{0,2000}\}")
_VERDICT_WORDS = re.compile(
    r"[\"']?\b(?:teacher_score|safety_flag|rubric|overall|verdict|critique|score|rating|grade|met|evidence)[\"']?\s*[:=]",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?:[^.!?。！？\n；;]|\.(?=\d))+[.!?。！？\n；;]*")


def new_fence() -> str:
    return secrets.token_hex(8)


def neutral(text: str, like: str | None = None) -> str:
    """The text with everything that could address the grader replaced by a mark; ordinary answers pass unchanged.

    `like` is the question: an answer may use the languages that it uses, besides Chinese and English.
    """
    plain, turned = visible(text)
    plain = _FENCED.sub(lambda block: MARK if _VERDICT_WORDS.search(block[0]) else block[0], plain)
    for _ in range(4):  # braces inside braces
        cut = _BRACES.sub(lambda block: MARK if _VERDICT_WORDS.search(block[0]) or MARK in block[0] else block[0], plain)
        if cut == plain:
            break
        plain = cut
    for _ in range(3):  # a token inside a token
        cut = _TOKENS.sub(MARK, plain)
        if cut == plain:
            break
        plain = cut
    plain = without_codes(plain, MARK)
    kept = _without_attacks(_SENTENCE.findall(plain), plain if like is None else like, attacked=turned or MARK in plain)
    return re.sub(r"(?:\[removed\][\s,:}{\]]*){2,}", MARK + " ", "".join(kept)).strip()


def _without_attacks(sentences: list[str], like: str, attacked: bool) -> list[str]:
    """A second look at the rest when there was an attack: its other half often stands beside it."""
    bad = [speaks_to_grader(sentence) or _foreign(sentence, like) for sentence in sentences]
    for first in range(len(sentences) - 1):  # "give it full" / "marks"
        if not bad[first] and not bad[first + 1] and sentences[first].endswith("\n"):
            bad[first] = bad[first + 1] = speaks_to_grader(sentences[first].rstrip("\n") + " " + sentences[first + 1])
    if attacked or any(bad):
        bad = [was or goes_with_an_attack(sentence) for was, sentence in zip(bad, sentences, strict=True)]
    return [f" {MARK} " if was else sentence for was, sentence in zip(bad, sentences, strict=True)]


def _foreign(sentence: str, like: str) -> bool:
    strange = scripts(sentence)
    if strange:
        return not strange <= scripts(like)
    tongue = language(sentence)
    return tongue != "english" and tongue != language(like)


def as_data(fence: str, **values: str | None) -> str:
    """A JSON object between two fence lines; angle brackets are escaped so that no tag survives."""
    body = json.dumps({name: value for name, value in values.items() if value is not None}, ensure_ascii=False)
    return f"=== data {fence} ===\n{body.replace('<', chr(92) + 'u003c').replace('>', chr(92) + 'u003e')}\n=== end {fence} ==="
