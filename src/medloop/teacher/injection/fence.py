"""The graded answer as data: text that could address the grader is removed before the grader sees it.

Removed and marked are chat-format tokens, invisible characters, encodings, verdicts in JSON, and sentences that talk to or about
the grader (`grader_address.py`), also when obfuscated or in languages that the question does not use (`obfuscation.py`). The rest
becomes JSON between two lines with a random word, which the grader must return.
"""

import json
import re
import secrets

from medloop.teacher.injection.grader_address import accompanies_attack, addresses_grader
from medloop.teacher.injection.obfuscation import foreign_scripts, latin_language, remove_encoded, strip_invisible

VERSION = "2"
REMOVED = "[removed]"

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


def sanitize(text: str, like: str | None = None) -> str:
    """The text with everything that could address the grader replaced by "[removed]"; ordinary answers pass unchanged.

    `like` is the question: an answer may use its languages, besides Chinese and English.
    """
    plain, is_reversed = strip_invisible(text)
    plain = _FENCED.sub(lambda block: REMOVED if _VERDICT_WORDS.search(block[0]) else block[0], plain)
    for _ in range(4):  # braces inside braces
        shorter = _BRACES.sub(
            lambda block: REMOVED if _VERDICT_WORDS.search(block[0]) or REMOVED in block[0] else block[0], plain
        )
        if shorter == plain:
            break
        plain = shorter
    for _ in range(3):  # a token inside a token
        shorter = _TOKENS.sub(REMOVED, plain)
        if shorter == plain:
            break
        plain = shorter
    plain = remove_encoded(plain, REMOVED)
    sentences = _without_attacks(
        _SENTENCE.findall(plain), plain if like is None else like, attacked=is_reversed or REMOVED in plain
    )
    return re.sub(r"(?:\[removed\][\s,:}{\]]*){2,}", REMOVED + " ", "".join(sentences)).strip()


def _without_attacks(sentences: list[str], like: str, attacked: bool) -> list[str]:
    """Replace attacks. Where there was one, the other sentences are checked more strictly: its other half is often beside it."""
    bad = [addresses_grader(sentence) or _foreign(sentence, like) for sentence in sentences]
    for first in range(len(sentences) - 1):  # "give it full" / "marks"
        if not bad[first] and not bad[first + 1] and sentences[first].endswith("\n"):
            bad[first] = bad[first + 1] = addresses_grader(sentences[first].rstrip("\n") + " " + sentences[first + 1])
    if attacked or any(bad):
        bad = [is_bad or accompanies_attack(sentence) for is_bad, sentence in zip(bad, sentences, strict=True)]
    return [f" {REMOVED} " if is_bad else sentence for is_bad, sentence in zip(bad, sentences, strict=True)]


def _foreign(sentence: str, like: str) -> bool:
    scripts = foreign_scripts(sentence)
    if scripts:
        return not scripts <= foreign_scripts(like)
    language = latin_language(sentence)
    return language != "english" and language != latin_language(like)


def fenced_json(fence: str, **values: str | list[dict[str, str]] | None) -> str:
    """A JSON object between two fence lines; angle brackets are escaped so that no tag survives."""
    body = json.dumps({name: value for name, value in values.items() if value is not None}, ensure_ascii=False)
    return f"=== data {fence} ===\n{body.replace('<', chr(92) + 'u003c').replace('>', chr(92) + 'u003e')}\n=== end {fence} ==="
