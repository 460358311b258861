"""An identifier that is announced and was not found: "my cell is" or 身份证号 with no placeholder behind it."""

# ruff: noqa: E501  patterns in long lines are easier to read than in pieces
import re

from medloop.privacy.phi.guards import lazy_pattern
from medloop.privacy.phi.normalize import MASK

_ENGLISH = lazy_pattern(
    r"\b(?:(?:my|his|her|their|pt'?s?|patient'?s?|mum'?s?|mom'?s?|dad'?s?|wife'?s?|husband'?s?|daughter'?s?|son'?s?|home|work|cell|mobile|contact|new) (?:cell|phone|mobile|number|tel|fax|e-?mail|address|addr|zip|postcode|ssn|social|mrn|dob|birthday|passport|plate|insta|handle|username|account|card|id)\b(?! (?:is (?:high|low|normal)|of|for))"
    r"|(?:ssn|social security(?: number)?|mrn|nhs(?: number| no)?|dob|d\.o\.b\.?|date of birth|passport|medicare|iban|e-?mail|addr|tel|mobile|phone|url|insta|whatsapp|skype|zip(?: code)?|postcode|licen[cs]e plate|username|login|acct|policy|member id|chart)[ ]?(?:is|no\.?|number|#|:|=)"
    r"|(?:mail|call|text|ring|dial|dm|reach|page|email) (?:me|her|him|us|them|mum|mom|dad) (?:at|on|:|@|via)|(?:mail|email) me:|lives? (?:at(?! home)|on the corner|behind|above|next to|across from)|live at(?! home)|stay(?:s|ing) at(?! home)|sleeping (?:in|behind|at)|works? nights at|surname|maiden name|legal name|last name|first name|nickname|goes by|born on|badge|plate)\b",
    re.I,
)
_CHINESE = lazy_pattern(
    "(?:手机|(?<!急救)(?<!报警)(?<!求助)(?<!援助)(?<!热线)电话|座机|微信|微.{1,2}信|[Qq]{2}|邮箱|电邮|身份证|证件?号|护照|通行证|居住证|居留证|车牌|卡号|账号|户名|住址|地址|家住|现住|住在(?=[^院])|^住|(?<=[,，。;\\n])住(?=[^院了])|户籍|籍贯|老家|联系方式|号码|病[历案]号|住院号|门诊号|医保[卡号]|社保[卡号]|学号|工号|编号|密码|生日|出生(?:于|日期|年月)|(?<=\\d)出生|姓名|名字|网名|昵称|真名|大名|小名|曾用名|签名|落款|称呼)"
    "[是为叫:：号码在于写成的]{0,3}"
)
_NOTHING = lazy_pattern(
    r"^[\s]*(?:$|[。！？?.!]|随访|咨询|通知|告知|联系|回访|预约|同上|不详|未知|保密|畅通|无|没有|暂无|n/?a\b|unknown|none|not (?:given|known|available))",
    re.I,
)
_NUMBER_OR_NAME = lazy_pattern(r"[^\s,，。;；]{2}")
_NEAR = 24  # characters behind the announcement


def is_left(folded: str) -> bool:
    """Whether an identifier is announced in a scrubbed text and no placeholder stands beside the announcement."""
    is_english = folded.replace(MASK, "").isascii() and "qq" not in folded.lower()
    for regex in (_ENGLISH,) if is_english else (_ENGLISH, _CHINESE):
        for match in regex.finditer(folded):
            behind = folded[match.end() : match.end() + _NEAR]
            before = folded[max(0, match.start() - 12) : match.start()]
            if MASK not in behind and MASK not in before and not _NOTHING.match(behind) and _NUMBER_OR_NAME.search(behind):
                return True
    return False
