"""Clean texts and messages, or give the reason why a conversation cannot be used.

`clean_text` is idempotent: cleaning what is clean changes nothing, so exported data comes back the same. It removes
markup, chat control tokens, role labels, site boilerplate and invisible characters; it keeps `<think>` and comparisons
such as "BP <140". Nothing is rewritten, translated or shortened.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from medloop.contracts import Conversation, Message
from medloop.contracts.chat import Role
from medloop.contracts.dataset import DropReason
from medloop.data.sources.shapes import RoleText
from medloop.patterns import lazy_pattern

# A tag needs a known name and, after it, nothing or attributes with '='; "if a <b and c> d" is not a tag.
_NAMES = (
    "a|abbr|article|aside|b|big|blockquote|body|br|button|center|cite|code|col|colgroup|dd|div|dl|dt|em|figure|font|footer|form|"
    "h[1-6]|head|header|hr|html|i|iframe|img|input|label|li|link|main|meta|nav|ol|option|p|pre|q|s|section|select|small|"
    "span|strike|strong|sub|sup|table|tbody|td|textarea|tfoot|th|thead|title|tr|tt|u|ul|video"
)
_TAG = lazy_pattern(rf"<(/?)({_NAMES})(?:\s+[\w:-]+\s*=[^<>]*|\s*)/?>", re.I)
_BLOCK = lazy_pattern(r"br|p|div|li|tr|h[1-6]|hr|ul|ol|table|section|article|blockquote|dd|dt|title", re.I)
_HIDDEN = lazy_pattern(r"<(script|style)\b[^<>]*>.*?</\1\s*>|<!--.*?-->|<!doctype[^<>]*>", re.I | re.S)

# What chat templates use as control tokens. Left in a text they would be read as the end of a message, so they go.
_CONTROL = lazy_pattern(
    r"<[|｜]im_start[|｜]>\s*(?:system|user|assistant)?"
    r"|<[|｜][^<>|｜\n]{1,40}[|｜]>"
    r"|\[/?(?:INST|CLS|SEP|PAD|MASK|UNK|gMASK|sop)\]|<</?SYS>>"
    r"|</?(?:s|bos|eos|pad|unk|mask|start_of_turn|end_of_turn|end_of_utterance)>",
    re.I,
)
_MARKER = lazy_pattern(
    r"^[ \t]*#{2,3}[ \t]*(?:Instruction|Input|Response|Question|Answer|指令|输入|输出|回答|回复|问题)[ \t]*[:：][ \t]*",
    re.I | re.M,
)
_SAID_BY = {
    "user": lazy_pattern(r"^(?:(?:human|user|patient|question|用户|患者|病人|提问|问题|问)\s*[:：]\s*)+", re.I),
    "assistant": lazy_pattern(r"^(?:(?:assistant|ai|bot|(?:chat)?gpt|answer|助手|(?:医生)?(?:回复|回答|答))\s*[:：]\s*)+", re.I),
    "system": lazy_pattern(r"^(?:(?:system|系统)\s*[:：]\s*)+", re.I),
}  # fmt: skip
# What a consultation site adds to every page: form labels, picture placeholders, notices. They teach nothing.
_BOILERPLATE = lazy_pattern(
    r"\[(?:图片|image|表情)\]|（图片）|请输入问题的描述，医生将为您一一解答！"
    r"|(?:病情描述（发病时间、主要症状[^）\n]{0,12}）|曾经治疗情况和效果|想得到怎样的帮助)[:：]"
    r"|^[ \t]*(?:本回答由.{0,30}提供|转载请注明.{0,40}|责任编辑[:：].{0,20}|点击(?:查看|这里|进入).{0,30}|阅读全文|展开全部"
    r"|click here (?:to|for) .{0,60}|read more|all rights reserved\.?|copyright (?:©|\(c\)).{0,80})[ \t]*$",
    re.I | re.M,
)
_THANKS = lazy_pattern(
    r"(?:^|(?<=[。！？!?\n])|(?<=\w[,，]))\s*(?:以上是对.{0,40}?(?:建议|回答|解答)[，,])?"
    r"(?:希望|期望|但愿)(?:我的|以上|本次|这些)?(?:的)?(?:解释|回答|建议|解答|答复|内容|回复)?(?:能够|能|可以)?对(?:您|你)(?:能)?(?:有所|有|会有)帮助"
    r"(?:[，,。！!~～ ]*祝(?:您|你)?[^。！!？?\n]{0,14})?[。！!~～.]*\s*$"
)
_KEEP_AFTER_THANKS = 20  # characters that must remain, so that a polite reply is not emptied

_LINE_ENDS = dict.fromkeys(map(ord, "\r\x0b\x0c\x85\u2028\u2029"), "\n")
_UNSEEN = (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF, 0xAD, 0xFFFC)
_NO_TEXT = (
    *range(0x09),
    *range(0x0E, 0x20),
    *range(0x7F, 0x85),
    *range(0x86, 0xA0),
    *range(0xD800, 0xF900),
)  # control, surrogate, private
_PLAIN = {**dict.fromkeys((*_UNSEEN, *_NO_TEXT)), **_LINE_ENDS}
_LOOK_AT = 300  # characters that decide whether something is text
_LINK = lazy_pattern(r"https?://\S+")
_REPEATED = lazy_pattern(r"([。！？!?.,，、~～…=_*-])\1{3,}")  # "。。。。。。。。" means no more than "。。。"
_MOJIBAKE = lazy_pattern("\ufffd|锟斤拷|锟斤|烫烫烫|屯屯屯|â€|Ã[\u00a0-\u00bf]|ï¿½")


@dataclass(frozen=True)
class CleanLimits:
    """Minimum and maximum sizes. A Chinese character counts as three letters."""

    min_question_letters: int = 12
    min_answer_letters: int = 3
    max_chars: int = 20_000


def clean_text(text: str) -> str:
    """The same words without markup, control tokens, boilerplate and invisible characters."""
    for _ in range(8):  # removing one thing can complete another ("<<b>br>"); real text is stable after one or two rounds
        before = text
        text = _one_round(text)
        if text == before:
            break
    return text


def clean_messages(messages: Sequence[RoleText], limits: CleanLimits) -> Conversation | DropReason:
    """A conversation that starts with the user and ends with an answer, or the reason why not."""
    cleaned: list[tuple[str, str]] = []
    for role, content in messages:
        text = _unlabelled(role, clean_text(content))
        if role == "system":
            if cleaned and text:
                return "broken_turns"
            if text:
                cleaned.append((role, text))
        elif cleaned and cleaned[-1][0] == role:  # several messages in a row become one
            cleaned[-1] = (role, f"{cleaned[-1][1]}\n{text}".strip())
        else:
            cleaned.append((role, text))
    while cleaned and cleaned[-1][0] == "user" and len(cleaned) > 2:  # an unanswered last question teaches nothing
        cleaned.pop()
    return _fault(cleaned, limits) or _conversation(cleaned)


def _fault(messages: Sequence[tuple[str, str]], limits: CleanLimits) -> DropReason | None:
    spoken = [message for message in messages if message[0] != "system"]
    if not any(text for _, text in spoken):
        return "empty"
    if spoken[0][0] != "user":
        return "broken_turns"
    if len(spoken) < 2 or not spoken[-1][1]:
        return "no_answer"
    if not spoken[0][1]:
        return "empty"
    if not all(text for _, text in spoken):
        return "broken_turns"
    if sum(len(text) for _, text in messages) > limits.max_chars:
        return "too_long"
    question = "\n".join(text for role, text in spoken if role == "user")
    answer = "\n".join(text for role, text in spoken if role == "assistant")
    if any(_is_debris(text) for text in (question, answer)):
        return "debris"
    if any(_is_no_text(text) for text in (question, answer)):
        return "not_text"
    if _letters(question) < limits.min_question_letters or _letters(answer) < limits.min_answer_letters:
        return "too_short"
    return None


def _conversation(messages: Sequence[tuple[str, str]]) -> Conversation:
    roles: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}
    return Conversation(messages=tuple(Message(role=roles[role], content=text) for role, text in messages))


def _one_round(text: str) -> str:
    if "&" in text:
        text = html.unescape(text)
    text = text.replace("\r\n", "\n").translate(_PLAIN)
    if "<" in text or "[" in text or "#" in text:
        text = _CONTROL.sub("", _MARKER.sub("", text))
        text = _TAG.sub(lambda tag: "\n" if _BLOCK.fullmatch(tag[2]) else "", _HIDDEN.sub("", text))
    text = _REPEATED.sub(r"\1\1\1", _BOILERPLATE.sub("", text))
    text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    if "帮助" in text and (thanks := _THANKS.search(text)) and thanks.start() >= _KEEP_AFTER_THANKS:
        text = text[: thanks.start()].rstrip()
    return unicodedata.normalize("NFC", text)


def _unlabelled(role: str, text: str) -> str:
    return _SAID_BY[role].sub("", text)


def _is_debris(text: str) -> bool:
    """Wrongly decoded text, or one character over and over."""
    broken = sum(len(match) for match in _MOJIBAKE.findall(text))
    if broken > 1 and broken * 100 > len(text):
        return True
    body = "".join(text.split())
    return len(body) >= 20 and max(Counter(body).values()) * 2 > len(body)


def _is_no_text(text: str) -> bool:
    """Fewer than three letters in ten characters: numbers, links, symbols."""
    body = "".join(_LINK.sub("", text[:_LOOK_AT]).split())
    return sum(map(str.isalpha, body)) * 10 < len(body) * 3 or not body


def _letters(text: str) -> int:
    return sum(3 if char > "\u2e7f" else 1 for char in text[:_LOOK_AT] if char.isalpha())
