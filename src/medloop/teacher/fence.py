"""The graded answer as data: what could speak to the grader is taken out before the grader sees it.

Taken out and marked: chat-format tokens, invisible characters, sentences that talk to or about the grader, verdicts in
JSON. What is left is put into JSON between two lines that carry a random word, which the grader must give back.
"""

from __future__ import annotations

import json
import re
import secrets
import unicodedata

VERSION = "1"
MARK = "[removed]"

# Characters without a shape: zero width, direction, tags, variation selectors, other controls.
_UNSEEN = re.compile(
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
_SPEAKERS = "system|assistant|user|human|grader|evaluator|judge|系统|助手|评审|评分员|裁判"
_TOKENS = re.compile(
    r"<\s*[|｜][^<>\n]{0,40}[|｜]\s*>|\[/?(?:INST|SYS)\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk|endoftext)>"
    rf"|^\s*(?:#{{1,4}}\s*)?(?:{_SPEAKERS})\s*[:：]"
    r"|</?(?:system|assistant|user|human|tool|grader|verdict|data|instructions?)\b[^>\n]{0,60}>"
    r"|<{3,}[^\n]{0,80}>{3,}|-{3,}\s*(?:BEGIN|END)[^\n]{0,60}|={3,}[^\n]{0,80}={3,}",
    re.IGNORECASE | re.MULTILINE,
)
_FENCED = re.compile(r"```.{0,4000}?(?:```|\Z)", re.DOTALL)
_VERDICT_WORDS = re.compile(
    r"\"?\b(?:teacher_score|safety_flag|rubric|overall|verdict|critique|score|rating|grade|met|evidence)\"?\s*[:=]", re.IGNORECASE
)
_BRACES = re.compile(r"\{[^{}]{0,2000}\}")
# A sentence is an attack when it names grading and wants something, or tells a reader to drop its instructions.
_SENTENCE = re.compile(r"(?:[^.!?。！？\n；;]|\.(?=\d))+[.!?。！？\n；;]*")
_FIELDS = re.compile(r"\b(?:teacher_score|safety_flag|overall|rubric|criteria)\b[\"']?\s*[:=]", re.IGNORECASE)
_GRADING = re.compile(
    r"\b(?:scor(?:e|es|ed|ing)|rat(?:e|es|ed|ings?)|grad(?:e|es|er|ers|ing)|rubrics?|criteri(?:a|on)|verdict|evaluat\w+"
    r"|judg(?:e|es|ment|ement|ing)|marks?|points?|teacher|reviewer|assess(?:or|ment)|reward|benchmark|prompt|instructions?"
    r"|json|ai|language model|assistant|system)\b"
    r"|评分|打分|满分|得分|分数|高分|评估|评审|评判|评价|裁判|老师|教师|标准|奖励|指令|提示词|系统|模型|助手|判定|达标"
    r"|[\d一二十百]分(?!钟|泌|型|娩|散|离|布|类|级|裂|子|开|次|期|析|别|解|之|为)",
    re.IGNORECASE,
)
_WANTING = re.compile(
    r"\b(?:gives?|assign|award|return|output|print|respond|reply|set|must|should|shall|please|ignore|disregard"
    r"|forget|override|keep|deserves?|perfect|full|maximum|max|highest|top|all|every|true|met|satisf\w+|meets?|pass(?:es|ed)?"
    r"|excellent|correct answer|100%?|confirmed?|approved?|follow|new|previous|above|prior|act as|you are|pretend|important"
    r"|note to)\b|\ba\+|\b\d{1,3}/\d{1,3}\b|1\.0"
    r"|请|给|打|必须|应当|务必|输出|返回|忽略|无视|忘记|满分|最高|全部|所有|符合|满足|通过|优秀|完美|设为|标为|判定|100",
    re.IGNORECASE,
)
_ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|above|prior|earlier|all|any|your|the)\b"
    r"|\b(?:you are now|act as|pretend to be|from now on)\b|\bas an? (?:ai|language model|grader|judge)\b"
    r"|(?:忽略|无视|忘记|绕过).{0,12}(?:以上|之前|前面|上述|所有|指令|规则|要求)|(?:从现在起|从现在开始|你现在是|扮演)",
    re.IGNORECASE,
)
_LETTERS = re.compile(r"(?<!\w)(?:\w[ .\-_*]){4,}\w(?!\w)")  # s c o r e
_ENCODED = re.compile(
    r"[A-Za-z0-9+/]{40,}={0,2}"
    r"|(?:\\u[0-9a-fA-F]{4}){4,}|(?:&#x?[0-9a-fA-F]{2,6};){3,}|(?:%[0-9a-fA-F]{2}){6,}"
)


def new_fence() -> str:
    return secrets.token_hex(8)


def neutral(text: str) -> str:
    """The text with everything that could address the grader replaced by a mark; ordinary answers pass unchanged."""
    plain = _UNSEEN.sub("", text)
    if plain != text or not plain.isascii():
        plain = _plain_letters(plain)
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
    plain = _ENCODED.sub(MARK, plain)
    return re.sub(r"(?:\[removed\][\s,:}{\]]*){2,}", MARK + " ", _SENTENCE.sub(_without_attack, plain)).strip()


def _plain_letters(text: str) -> str:
    """Letters dressed up (full width, mathematical, circled) in their plain form; Chinese text keeps its punctuation."""
    keep = "，。；：！？（）、“”‘’…《》—·【】"
    return "".join(c if c in keep or ord(c) < 128 else unicodedata.normalize("NFKC", c) for c in text)


def _without_attack(match: re.Match[str]) -> str:
    sentence = match[0]
    bare = _LETTERS.sub(lambda found: re.sub(r"[ .\-_*]", "", found[0]), sentence)
    grading = _GRADING.search(bare) and _WANTING.search(bare) and not _is_medical(bare)
    attack = _ORDERS.search(bare) or _FIELDS.search(bare) or grading
    attack = attack or (_VERDICT_WORDS.search(bare) and _WANTING.search(bare))
    return f" {MARK} " if attack else sentence


# "Your Glasgow score should be checked": words of grading that belong to medicine, without a word for this grading.
_MEDICAL = re.compile(
    r"\b(?:apgar|glasgow|gcs|child-pugh|cha2ds2|wells|meld|nihss|bishop|pain|[tz]-score|apache|sofa|risk|heart rate"
    r"|respiratory rate|blood|pulse|(?:immune|nervous|digestive|respiratory|circulatory|urinary) system|physician assistant"
    r"|birth|pressure points?|doctor|tumou?rs?|cancer|sarcoma|(?:low|high)[- ]grade|stag(?:e|ing)|sedimentation"
    r"|symptoms?|disease)\b|疼痛评分|血|心率|系统性|(?:免疫|神经|消化|呼吸|循环|泌尿|内分泌)系统|诊断标准|收缩|检查|标准体重|评估病情|病情评估"
    r"|就医|医生|医师|剂量|治疗|十分(?:严重|重要|危险|必要|疼痛|常见)",
    re.IGNORECASE,
)
_THIS_GRADING = re.compile(
    r"\b(?:this|the|my|above|following) (?:answer|response|reply)\b|\b(?:full|maximum|max|perfect|top|highest) "
    r"(?:score|marks?|points?|rating|grade)|\b1\.0\b|10/10|\brubric|\bcriteria\b|\bgrader\b|\bevaluator\b|teacher_score"
    r"|[本该此]回答|满分|打分|评分员|评审|裁判|(?:全部|所有)标准",
    re.IGNORECASE,
)


def _is_medical(sentence: str) -> bool:
    return bool(_MEDICAL.search(sentence)) and not _THIS_GRADING.search(sentence)


def as_data(fence: str, **values: str | None) -> str:
    """A JSON object between two fence lines; angle brackets are escaped so that no tag survives."""
    body = json.dumps({name: value for name, value in values.items() if value is not None}, ensure_ascii=False)
    return f"=== data {fence} ===\n{body.replace('<', chr(92) + 'u003c').replace('>', chr(92) + 'u003e')}\n=== end {fence} ==="
