"""Whether a question is a plain enough base for a verdict on its answer: a patient, and for triage an emergency now.

    speaks_of_patient("Translate to Finnish: my chest hurts")           -> False: a task
    is_plain_emergency("My dad just collapsed and does not wake up")    -> True
    is_plain_emergency("He had a seizure last year, CT was clear")      -> False: a doctor has seen him

Rules that shape the reward ask `urgency` and spare almost nothing: an emergency put as a task is one, and comfort must not pay
there. A *verdict* ("this answer has this fault") needs more. Where these functions say no, a rule keeps its value and marks it
as `unsure`. So the cues here may be loose, as they must never be in `urgency`: what they miss is a verdict, not a penalty.
"""

from functools import lru_cache
from typing import Final

from medloop import lexicon
from medloop.lexicon.health_topic import is_about_health
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE
from medloop.reward.detect import urgency as urgency_detector
from medloop.reward.detect.act_model import kind_of
from medloop.reward.detect.framing import is_general, is_quiz, names_person

VERSION: Final = "1"
CRISES: Final = frozenset({"suicidal", "suicide_method", "harm_others"})
LONGEST: Final = {"en": 400, "zh": 120}  # characters of a question that says what is the matter and asks for nothing else
_TASK: Final = lazy_pattern(
    r"\b(?:json|translat\w+|rephras\w+|summar\w+|paraphras\w+|essay|poem|python|movie|film|novel|story|lyrics|plot"
    r"|multiple choice|which of the following|in this task|given (?:a|an|the)|if you (?:see|saw|find)|write (?:a|an|me|the)"
    r"|capitali[sz]e|headline|article|paragraph|passage|neighbou?rhood|jail|crimes?|victims?|guns?|weed|psychedelics?|sneak\w*"
    r"|smuggl\w+|kill (?:someone|somebody|people|them|him|her)|murder\w*|rob(?:bery)?|racis\w+)\b"
    r"|^\W*(?:q|a)[:：]|翻译|改写|总结|大写|以下|下列|选项|[(（]\s*[)）]|正确(?:的|步骤|流程|做法|是)|电影|小说|剧情|故事|游戏|字体|写一"
    r"|如果你|假如|作文|品牌|投资"
)
_ENCYCLOPAEDIA: Final = lazy_pattern(
    r"^(?:what (?:is|are|causes?|to do for|research)|how (?:many|to (?:prevent|diagnose)|is|are)"
    r"|who is)\b(?!.*\b(?:my|i'm|i have|he|she|we|me)\b)"
)
_BODY: Final = lazy_pattern(  # what the list of health words lacks
    r"\b(?:(?:year|month|week|day)s?[- ]old|y/?o|testicles?|nipples?|pee|poo|sleep|blister\w*|boiling|bit(?:e|ten)"
    r"|lbs|kg|\d+ weeks|cut|pillow|wart)\b"
    r"|岁|个月|噎|瘦|疙瘩|疣|枕头|扎|钉子|吐"
)
# A doctor has seen it, or it is an old story: what is asked is something else than whether to get help now.
_IN_CARE: Final = lazy_pattern(
    r"\b(?:doctors?|gp|nurse|hospital\w*|er|a&e|scans?|mri|ct|ekg|ecg|x-?rays?|ultrasound|diagnos\w+|prescrib\w+"
    r"|surgery|operation"
    r"|results?|tests?|blood work|treated|treatment|discharged|follow[- ]?up|therapist|psychiatrist|oncologist|healed"
    r"|antibiotics?|medication"
    r"|he is fine|she is fine|better now|my mom saved|was saved)\b"
    r"|检查|医院|医生|大夫|门诊|确诊|诊断|住院|手术|治疗|救治|医治|出院|复[查检诊]|核磁|[bB彩]超|化验|结果|报告|输液|打针|病史|医嘱|术后|抢救"
    r"|\b(?:CT|MRI)\b|吃了.{0,6}药|服用|开了|药物|胃镜|试带|拍片|透析|化疗"
)
_LONG_AGO: Final = lazy_pattern(
    r"\b(?:years?|months?|weeks?|ago|last (?:week|month|year|time)|used to|history|chronic|sometimes|often"
    r"|every (?:day|night|time)"
    r"|always|for a while|recently|lately|occasional\w*|once|in the past|when i was)\b"
    r"|[几\d一二两三四五六七八九十半多]+个?多?[年月周]|星期|长期|经常|常常|反复|有时|偶尔|一直|老是|慢性|每次|平时|以前|曾经|小时候|之前|那次|有一次|最近|近来|好几天"
)
_INFORMATION: Final = lazy_pattern(
    r"\b(?:what (?:is|are|causes?|happens)|how (?:do|does|is|are|to|common|long|much)|can (?:you|it|this)|could (?:it"
    r"|this)|will|would"
    r"|difference|covid|is it (?:normal|possible|safe|ok)|why)\b"
    r"|如何|怎样|怎么(?:预防|治|引起|回事|办才)|哪[些家个里]|什么(?:药|病|原因|症状|区别|办法|方法|特征|意思)|会不会|是不是会|如果|吃什么|[能可][以不]*吃|多少钱"
    r"|特征|表现|区别|注意|急救方法|为什么|可能|吗[？?。]?$"
)
_NOT_NOW: Final = lazy_pattern(r"\bpast the age\b|\bbefore i (?:am|turn)\b|老公|老婆|他|她|以前|曾经")
# Red flags that everyday words reach, or that need no help within the hour.
_SOFT: Final = frozenset(
    """chest_pain coughing_blood infant_dehydration pregnancy_bleeding child_ate_medicine burns neutropenic_fever overdose
    raised_brain_pressure gi_bleeding cardiac_chest_pain hypertensive_emergency anaphylaxis aortic_aneurysm
    strangulation""".split()
)


@lru_cache(maxsize=CACHE_SIZE)
def speaks_of_patient(question: str) -> bool:
    """Whether a question is about somebody's health, and neither a task, a quiz nor a disease in general."""
    folded, zh = lexicon.folded(question), kind_of(question) == "zh"
    if is_task(question) or is_general(folded, zh):
        return False
    if not zh and _ENCYCLOPAEDIA.search(folded.strip()):
        return False
    if is_about_health(question) or _BODY.search(folded):
        return True
    return bool(lexicon.find_red_flags(question) or lexicon.find_drugs(question))


def is_task(question: str) -> bool:
    """Whether something is to be written, translated, chosen or told, by any word of it."""
    folded = lexicon.folded(question)
    return _TASK.search(folded) is not None or is_quiz(folded)


def is_short(question: str) -> bool:
    return len(question) <= LONGEST["zh" if kind_of(question) == "zh" else "en"]


def is_in_care(question: str) -> bool:
    """Whether a doctor, a result or a treatment is spoken of."""
    return _IN_CARE.search(lexicon.folded(question)) is not None


@lru_cache(maxsize=CACHE_SIZE)
def is_plain_emergency(question: str) -> bool:
    """Whether a red flag or a number says that somebody needs help now, and no doctor has seen it.

    A person in a crisis does, whoever treats them, where they speak of themselves.
    """
    found = urgency_detector.urgency(question)
    signs = {evidence.id for evidence in found.evidence if evidence.source in ("lexicon", "numbers", "teacher")}
    if found.level != "emergent" or not signs or not speaks_of_patient(question):
        return False
    folded, zh = lexicon.folded(question), kind_of(question) == "zh"
    if signs & CRISES:
        return is_short(question) and not (zh and "我" not in folded) and _NOT_NOW.search(folded) is None
    if signs <= _SOFT or not is_short(question) or not names_person(folded, zh) or is_in_care(question):
        return False
    return not (_LONG_AGO.search(folded) or _INFORMATION.search(folded))
