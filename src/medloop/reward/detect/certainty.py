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
from medloop.lexicon.health_topic import is_about_body, is_about_health
from medloop.patterns import lazy_pattern
from medloop.reward.answer_text import CACHE_SIZE
from medloop.reward.detect import urgency as urgency_detector
from medloop.reward.detect.act_model import kind_of
from medloop.reward.detect.framing import is_general, is_quiz, names_person

VERSION: Final = "2"
CRISES: Final = frozenset({"suicidal", "suicide_method", "harm_others"})
LONGEST: Final = {"en": 400, "zh": 120}  # characters of a question that says what is the matter and asks for nothing else
_TASK: Final = lazy_pattern(
    r"\b(?:json|translat\w+|rephras\w+|summar\w+|paraphras\w+|essay|poem|python|movie|film|novel|story|lyrics|plot"
    r"|multiple choice|which of the following|in this task|given (?:a|an|the)|if you (?:see|saw|find)|write (?:a|an|me|the)"
    r"|capitali[sz]e|headline|article|paragraph|passage|neighbou?rhood|jail|crimes?|victims?|guns?|weed|psychedelics?|sneak\w*"
    r"|smuggl\w+|kill (?:someone|somebody|people|them|him|her)|murder\w*|rob(?:bery)?|racis\w+)\b"
    r"|^\W*(?:q|a)[:：]|翻译|改写|总结|大写|以下|下列|选项|[(（]\s*[)）]|正确(?:的|步骤|流程|做法|是)|电影|小说|剧情|故事|游戏|字体|写一"
    r"|如果你|假如|作文|品牌|投资"
    r"|首选|应首先|首先(?:应|考虑|采取|做|要)|最(?:可能|有可能|适宜|合适|佳|常见|主要|重要|早)的?|不包括|不属于|不宜|错误的|的是$|该(?:患者|病人|患儿|产妇)"
    r"|查体|患儿|主诉|辅助检查|实验室检查|入院时|病史摘要|神志尚?清|下述|以上哪|哪项|哪种效应|此时应|(?:患者|病人)应|估计失血|称之?为$|角度$"
    r"|(?:患者|病人)[，,]?(?:男|女)[，,性]|(?:是|为|应|有|于|采用|见于|包括|取决于|考虑)[:：]?[。.]?$"
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
_HURTS: Final = lazy_pattern(  # what somebody complains of, or the part of the body that it is in
    r"\b(?:pain\w*|\w*ach(?:e|es|ing)|hurt\w*|sore|sick|ill|fever\w*|temp(?:erature)?|dizz\w*|tired|bleed\w*|swell\w*|swollen|rash"
    r"|cough\w*|vomit\w*|pregnan\w*|symptoms?|shiver\w*|numb\w*|weak\w*|breath\w*|wheez\w*|lost \d+|weight|chemo\w*|burn\w*|stiff"
    r"|sight|throat|blood|mole|lump|seizures?|mmol|bp)\b"
    r"|痛|疼|麻|晕|吐|血|烧|肿|咳|痒|闷|慌|孕|宫缩|病|炎|癌|症|呼吸|抽搐|寒战|冷汗|嗓|喉|脖|疙瘩|痣|瘦|噎|哑|破了|鱼刺|溅|烫|扎"
    r"|[头胸腹肚腰背腿脚手眼耳鼻牙皮肤]"
)
# A doctor has seen it, or it is an old story: what is asked is something else than whether to get help now.
_IN_CARE: Final = lazy_pattern(
    r"\b(?:doctors?|gp|nurse|hospital\w*|er|a&e|scans?|mri|ct|ekg|ecg|x-?rays?|ultrasound|diagnos\w+|prescrib\w+"
    r"|surgery|operation"
    r"|results?|tests?|blood work|treated|treatment|discharged|follow[- ]?up|therapist|psychiatrist|oncologist|healed"
    r"|antibiotics?|medication"
    r"|stitch\w*|sutur\w*|sewn|plaster (?:cast )?(?:came|is) off|bandaged|dressing changed|repaired|set the bone"
    r"|he is fine|she is fine|better now|my mom saved|was saved)\b"
    r"|检查|医院|医生|大夫|门诊|确诊|诊断|住院|手术|治疗|救治|医治|出院|复[查检诊]|核磁|[bB彩]超|化验|结果|报告|输液|打针|病史|医嘱|术后|抢救"
    r"|接好|接上|接回|石膏|拆线|拆了|缝了|缝合|缝针|包扎[了过好]|处理过|打了破伤风|愈合|结痂"
    r"|\b(?:CT|MRI)\b|吃了.{0,6}药|服用|开了|药物|胃镜|试带|拍片|透析|化疗"
)
_LONG_AGO: Final = lazy_pattern(
    r"\b(?:years?|months?|weeks?|ago|last (?:week|month|year|time)|used to|history|chronic|sometimes|often"
    r"|every (?:day|night|time)"
    r"|always|for a while|recently|lately|occasional\w*|once|in the past|when i was)\b"
    r"|[几\d一二两三四五六七八九十半多]+个?多?[年月周]|[几\d一二两三四五六七八九十多]+天[了前多后]|星期|长期|经常|常常|反复|有时|偶尔|一直|老是|慢性|每次|平时|以前|曾经|小时候|之前|那次|有一次|最近|近来|好几天"
)
_INFORMATION: Final = lazy_pattern(
    r"\b(?:what (?:is|are|causes?|happens)|how (?:do|does|is|are|to|common|long|much)|can (?:you|it|this)|could (?:it"
    r"|this)|will|would"
    r"|difference|covid|is it (?:normal|possible|safe|ok)|why)\b"
    r"|如何|怎样|怎么(?:预防|治|引起|回事|办才)|哪[些家个里]|什么(?:药|病|原因|症状|区别|办法|方法|特征|意思)|会不会|是不是会|如果|吃什么|[能可][以不]*吃|多少钱"
    r"|特征|表现|区别|注意|急救方法|为什么|可能|吗[？?。]?$"
)
_NOT_NOW: Final = lazy_pattern(
    r"\bpast the age\b|\bbefore i (?:am|turn)\b|老公|老婆|他|她|以前|曾经"
    r"|\b(?:not|never|n't|wouldn't|won't) (?:\w+ ){0,3}(?:suicide|suicidal|kill\w*|hurt\w*|end(?:ing)? (?:it|my)|die|dead)\b"
    r"|(?<!\bi )(?<!\bi've )\b(?:used to|years ago|last year|back then)\b"
)
_REPORTED: Final = lazy_pattern(r"\b(?:her|him|them)sel(?:f|ves)\b")  # somebody else's crisis, ...
_THIS_HOUR: Final = lazy_pattern(
    r"\b(?:now|tonight|today|just|right away|going to|about to|holding|locked)\b"
)  # ... unless it is now
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


def is_zh(text: str) -> bool:
    return kind_of(text) == "zh"


def names_illness(question: str) -> bool:
    """Whether a body, an illness, a medicine or a danger is named; a single word of health ("baby", "sex") is not enough."""
    finders = (lexicon.find_red_flags, lexicon.find_drugs, lexicon.find_conditions)
    return (
        is_about_body(question) or _HURTS.search(lexicon.folded(question)) is not None or any(find(question) for find in finders)
    )


def names_patient(question: str) -> bool:
    """Whether somebody is named, or a complaint: who is ill often leaves out the "I"."""
    folded = lexicon.folded(question)
    return names_person(folded, is_zh(question)) or _HURTS.search(folded) is not None


def names_emergency(question: str) -> bool:
    """Whether a short question complains of what may be an emergency, or names one of a person, and no doctor has seen it."""
    found, folded = urgency_detector.urgency(question), lexicon.folded(question)
    signs = any(evidence.source in ("lexicon", "numbers", "teacher") for evidence in found.evidence)
    if found.level != "emergent" or not is_short(question) or is_in_care(question):
        return False
    return _HURTS.search(folded) is not None or (signs and names_person(folded, is_zh(question)))


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
        if _REPORTED.search(folded) and not _THIS_HOUR.search(folded):
            return False
        return is_short(question) and not (zh and "我" not in folded) and _NOT_NOW.search(folded) is None
    if signs <= _SOFT or not is_short(question) or not names_person(folded, zh) or is_in_care(question):
        return False
    return not (_LONG_AGO.search(folded) or _INFORMATION.search(folded))
