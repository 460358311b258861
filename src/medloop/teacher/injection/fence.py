"""The graded answer as data: text that could address the grader is removed before the grader sees it.

Removed and marked are chat-format tokens, invisible characters, encodings, verdicts in JSON or tables, and sentences that
talk to or about the grader (`grader_address.py`) or vouch for the answer (`quality_claims.py`), also when obfuscated or in
languages that the question does not use (`obfuscation.py`). The rest becomes JSON between two lines with a random word, which
the grader must return.

Verdicts and such sentences are claims about the grading. They are reported, because they lower the score of an answer. A sentence
that only looks like one ("Full marks would be 15.") is removed too, but it is a claim only where something else gives it away.
"""

import json
import re
import secrets
from dataclasses import dataclass
from itertools import compress

from medloop.lexicon.health_topic import is_about_health
from medloop.patterns import lazy_pattern
from medloop.teacher.injection.grader_address import accompanies_attack, addresses_grader, asks_about_scores, claims_grade
from medloop.teacher.injection.obfuscation import foreign_scripts, invisible_text, latin_language, remove_encoded, strip_invisible

VERSION = "7"
REMOVED = "[removed]"
_BY_AUTHOR = "\ufdd0"  # no character of any text: stands for "[removed]" that the author wrote

_SPEAKERS = (
    "system|assistant|user|human|grader|evaluator|judge|instructions?|response|input|model|系统|助手|评审|评分员|裁判|用户"
)
_TOKENS = lazy_pattern(
    r"<\s*[|｜][^<>\n]{0,40}[|｜]\s*>|\[/?(?:INST|SYS|AVAILABLE_TOOLS|TOOL_CALLS)\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>(?:user|model)?"
    r"|<(?:bos|eos|pad|unk|endoftext)>|]]>|<!\[CDATA\[|</?(?:details|summary|script|style|template|meta|div|span)\b[^>\n]{0,200}>"
    rf"|(?:^\s*|#{{1,4}}\s*|^\s*\*\*)(?:{_SPEAKERS})(?:\*\*)?\s*[:：]"
    r"|</?(?:system|assistant|user|human|tool|grader|grading|verdict|data|answer|document|instructions?|scores?)\b[^>\n]{0,60}>"
    r"|<{3,}[^\n]{0,80}>{3,}|-{3,}\s*(?:BEGIN|END)[^\n]{0,60}|={3,}[^\n]{0,80}={3,}",
    re.IGNORECASE | re.MULTILINE,
)
_COMMENT = lazy_pattern(r"<!--.{0,2000}?(?:-->|\Z)|^\[(?://|comment)\]:?[^\n]{0,300}", re.DOTALL | re.MULTILINE)
_TABLE = lazy_pattern(r"(?:^[ \t]*\|[^\n]*\|[ \t]*(?:\n|\Z)){2,}", re.MULTILINE)
_TABLE_VERDICT = lazy_pattern(
    r"\|\s*(?:pass(?:ed)?|met|yes|ok|true|full|10|5/5|100%?|✓|✔|✅|通过|合格|满足|是|优秀?|达标|满分)\s*\|", re.IGNORECASE
)
_TABLE_ITEM = lazy_pattern(
    r"\|\s*(?:accura\w+|safe\w*|urgency|complete\w*|criteri\w+|correct\w*|item|overall|danger\w*|准确|安全|完整|正确|紧急|标准|项目|危险|总)",
    re.IGNORECASE,
)
_FENCED = lazy_pattern(r"(```|~~~).{0,4000}?(?:\1|\Z)", re.DOTALL)
_BRACES = lazy_pattern(r"\{[^{}]{0,2000}\}")
_OBJECT = lazy_pattern(r"^\{\s*([\"'])[\w ]{1,40}\1\s*:")  # JSON tells a patient nothing
_VERDICT_WORDS = lazy_pattern(
    r"[\"']?\b(?:teacher_score|safety_flag|rubric|overall|verdict|critique|score|rating|grade|met|evidence|faults?|unsafe"
    r"|dangerous_advice|medically_correct|answers_question)[\"']?\s*[:=]"
    r"|(?:总分|评分|得分|分数|评级|危险建议|医学正确|安全)[\"'”]?\s*[:：=]",
    re.IGNORECASE,
)
_ENDED = lazy_pattern(r"[.!?。！？；;]\s*$")
_SENTENCE = lazy_pattern(r"(?:[^.!?。！？\n；;]|\.(?=\d))+[.!?。！？\n；;]*")


def new_fence() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True)
class FencedText:
    """A text without what could address the grader, and the claims about grading that were cut out of it.

    `cut`: something was cut out. The text does not tell, because an author may write "[removed]", too.
    """

    text: str
    claims: tuple[str, ...]
    cut: bool = False


def sanitize(text: str, like: str | None = None) -> str:
    """The text of `inspect`, for those who need only that."""
    return inspect(text, like).text


def inspect(text: str, like: str | None = None, *, by_patient: bool = False) -> FencedText:
    """The text with everything that could address the grader replaced by "[removed]"; ordinary answers pass unchanged.

    `like` is the question: an answer may use its languages, besides Chinese and English. `by_patient`: a question, which stays
    as it is where nothing would be left of it though it may be innocent ("Is a 1.0 TSH good?").
    """
    claims: list[str] = []
    plain, is_reversed = strip_invisible(text)
    plain = plain.replace(_BY_AUTHOR, "").replace(REMOVED, _BY_AUTHOR)
    hidden = invisible_text(text)
    if hidden and addresses_grader(hidden):
        claims.append(hidden)
    plain = _without_blocks(plain, claims)
    for _ in range(3):  # a token inside a token
        shorter = _TOKENS.sub(REMOVED, plain)
        if shorter == plain:
            break
        plain = shorter
    plain = remove_encoded(plain, REMOVED, lambda decoded: claims.append(decoded) if addresses_grader(decoded) else None)
    attacked = is_reversed or REMOVED in plain or bool(claims)
    sentences = _without_attacks(sentences_of(plain), plain, like, attacked, claims, by_patient)
    clean = re.sub(r"(?:\[removed\][\s,:}{\]]*){2,}", REMOVED + " ", "".join(sentences)).strip()
    is_marked = not claims or REMOVED in clean
    clean = clean if is_marked else f"{clean} {REMOVED}"
    return FencedText(clean.replace(_BY_AUTHOR, REMOVED), tuple(claims), cut=REMOVED in clean)


def sentences_of(text: str) -> list[str]:
    return _SENTENCE.findall(text)


def _without_blocks(text: str, claims: list[str]) -> str:
    """Without comments, and without code blocks, braces and tables that hold a verdict."""

    def cut_verdict(block: re.Match[str]) -> str:
        if not _VERDICT_WORDS.search(block[0]) and REMOVED not in block[0]:
            return REMOVED if _OBJECT.search(block[0]) else block[0]
        if claims_grade(block[0]) or not is_about_health(block[0]):  # the log of a device may have a score
            claims.append(block[0])
        return REMOVED

    def cut_comment(comment: re.Match[str]) -> str:
        if addresses_grader(comment[0]):
            claims.append(comment[0])
        return REMOVED

    def cut_table(table: re.Match[str]) -> str:
        if not (_TABLE_VERDICT.search(table[0]) and _TABLE_ITEM.search(table[0])) or is_about_health(table[0]):
            return table[0]
        claims.append(table[0])
        return f"{REMOVED}\n"

    text = _COMMENT.sub(cut_comment, _FENCED.sub(cut_verdict, text))
    for _ in range(4):  # braces inside braces
        shorter = _BRACES.sub(cut_verdict, text)
        if shorter == text:
            break
        text = shorter
    return _TABLE.sub(cut_table, text)


def _without_attacks(
    sentences: list[str], plain: str, like: str | None, attacked: bool, claims: list[str], by_patient: bool
) -> list[str]:
    """Replace attacks, and report them where one is beyond doubt or something else was removed.

    The other sentences are then checked more strictly: the other half of an attack is often beside it.
    """
    about_scores = like is not None and asks_about_scores(like)
    like = plain if like is None else like
    speaks = [addresses_grader(sentence, about_scores) for sentence in sentences]
    for first in range(len(sentences) - 1):  # "give it full" / "marks"
        is_open = sentences[first].endswith("\n") and not _ENDED.search(sentences[first])
        if is_open and not speaks[first] and not speaks[first + 1]:
            together = sentences[first].rstrip("\n") + " " + sentences[first + 1]
            speaks[first] = speaks[first + 1] = addresses_grader(together, about_scores)
    suspects = list(compress(sentences, speaks))
    attacked = attacked or any(map(claims_grade, suspects)) or sum(not is_about_health(suspect) for suspect in suspects) > 2
    claims += [suspect.strip() for suspect in suspects if attacked]
    if by_patient and not attacked and all(speaks):
        speaks = [False] * len(sentences)
    foreign = [_foreign(sentence, like) for sentence in sentences]
    is_strict = attacked or any(speaks) or any(foreign)
    bad = [
        is_attack or is_foreign or (is_strict and accompanies_attack(sentence))
        for sentence, is_attack, is_foreign in zip(sentences, speaks, foreign, strict=True)
    ]
    return [f" {REMOVED} " if is_bad else sentence for is_bad, sentence in zip(bad, sentences, strict=True)]


def _foreign(sentence: str, like: str) -> bool:
    scripts = foreign_scripts(sentence)
    if scripts:
        return not scripts <= foreign_scripts(like)
    language = latin_language(sentence)
    return language != "english" and language != latin_language(like)


FencedValue = str | list[str] | list[dict[str, str]] | None


def fenced_json(fence: str, **values: FencedValue) -> str:
    """A JSON object between two fence lines; angle brackets are escaped so that no tag survives."""
    body = json.dumps({name: value for name, value in values.items() if value is not None}, ensure_ascii=False)
    return f"=== data {fence} ===\n{body.replace('<', chr(92) + 'u003c').replace('>', chr(92) + 'u003e')}\n=== end {fence} ==="
