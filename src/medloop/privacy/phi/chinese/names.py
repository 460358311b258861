"""Chinese names: what the network takes for a name, its exact extent, and how sure the network must be in each situation.

`SITUATIONS` is the table, in the order in which the rows are tried: the first that applies says how sure.
"""

# ruff: noqa: E501  lists and patterns in long lines are easier to read than in pieces
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from medloop.privacy.phi.allowed import is_term
from medloop.privacy.phi.chinese import choice
from medloop.privacy.phi.chinese.cues import (
    BEHIND_SURNAME,
    NOBODY,
    PERSON_BEHIND,
    RECORD,
    ROLE,
    SAYS,
    TITLED_BEHIND,
    WEEKDAY_WISH_OR_TOWN,
    WORD_ACROSS,
)
from medloop.privacy.phi.chinese.extent import BEFORE_SURNAME, FUNCTION, grow, opens
from medloop.privacy.phi.chinese.network import NameNetwork, load
from medloop.privacy.phi.chinese.products import is_product
from medloop.privacy.phi.chinese.words import (
    LONGEST_WORD,
    blocked_words,
    is_given,
    is_pair,
    is_seen,
    ordinary_words,
    surname_length,
)
from medloop.privacy.phi.guards import lazy_pattern

_HAN = lazy_pattern(r"[\u3400-\u9fff]")
Span = tuple[int, int, float]  # start, end, and how sure the network is
_HOT = -2.7  # the logit from which a character is looked at, a probability of about 0.06
_CERTAIN = 0.95
_SPOKEN = 0.5  # a situation that asks less has a role, a verb or a sign of a person
_NOTE = 150  # characters; in a longer text, learned weights add no names: it is hardly a note
_PLAIN = 0.6  # a situation that asks no more than this is no word in disguise
_SURE = 0.85  # so sure is the network of few words of medicine
_LIKELY = 0.25  # at the beginning of a note, where a patient's name stands
_LEFT = 0.5  # how close a word comes that the network is sure of and that is left
# What follows the patient's name at the beginning of a note.
PATIENT_BEHIND = lazy_pattern(
    r"[，,。（( ]|[\d一二两三四五六七八九十]{1,3}(?:岁|个?月)|[术产病]后|入院|出院|住院|出现|突发|突然|今[天晨日早晚]|昨[天晚日]|[上本]周|刚|又|也|还|被|因|用|服|吃|喝|打|做|查|拍|抽|发[热烧]|主?诉|说|问|值班"
    "|血|尿|便|体温|心[率电]|呼吸|精神|意识|神志|肝|肾|肺|胃|腹|胸|头|咳|呕|恶心|腰|腿|右|左|双|女士|先生|的[^士话时]|自[行述]|夜[间里]|反[复应映]|已|未|拒绝|要求|需|可"
)
NEVER = 2.0  # no network is as sure as that
_SIGNS = "，。：；、,:;（）() \n"
_ILLNESS = lazy_pattern("[胃肝肾肺脾肠癌炎症痛痒霉菌毒尿肿瘤疹疮疡痔痰咳喘泻药髂癜痣瘢脉栓膏]")
_TAKES = lazy_pattern("(?:服用|口服|服食|服|吃了|吃|涂抹?|外用|使用|注射|静滴|含服)(?:点|些|的)?$")
_BRAND = lazy_pattern(r"[片囊膏液粒剂丸浆散素针]\($")
_REMEDY = lazy_pattern("[丸霜散汤](?![一-鿿])|.(?:病(?![情历人房程])|综合征|综合症|[动静]脉|胶囊|颗粒|栓)")
_PATIENT = frozenset(("患者", "病人", "患儿", "产妇", "家属", "死者", "伤者"))


def find(text: str, about_person: bool = False, network: NameNetwork | None = None) -> tuple[list[tuple[int, int]], float]:
    """The names of a folded text, and how close the best of what was left came to being one (0 to 1).

    `about_person`: the text is known to be about a person, so that less is asked of a name.
    """
    if not _HAN.search(text):
        return [], 0.0
    chosen, doubted = choose(text, candidates(text, network or load()), about_person or bool(RECORD.search(text)))
    return chosen, max((nearness for _, _, nearness in doubted), default=0.0)


def candidates(text: str, network: NameNetwork) -> list[Span]:
    """What the network takes for a name, if only perhaps: start, end and the highest probability."""
    offsets, logits = network.read(text)
    hot = (logits[:, 1:].max(axis=1) - logits[:, 0] >= _HOT).nonzero()[0].tolist()
    if not hot:
        return []
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    inside, begins = (1 - probabilities[:, 0]).tolist(), probabilities[:, 1].tolist()
    return grow(text, inside, begins, offsets.tolist(), hot)


def choose(text: str, spans: Sequence[Span], in_record: bool) -> tuple[list[tuple[int, int]], list[Span]]:
    """Which candidates are names, and which of the others come close to being one, each with how close (0 to 1)."""
    # Where one person is named for certain, others are likely.
    named = [NameCandidate(text, start, end) for start, end, _ in spans]
    pairs = [(span, situation_of(name)) for span, name in zip(spans, named, strict=True)]
    in_record = in_record or any(span[2] >= _CERTAIN and situation.threshold <= _PLAIN for span, situation in pairs)
    context = choice.text_features(text, any(best >= _CERTAIN for _, _, best in spans))
    names, doubted = list[tuple[int, int]](), list[Span]()
    for ((start, end, best), situation), name in zip(pairs, named, strict=True):
        threshold = situation.in_record if in_record else situation.threshold
        likely = _SURE if text[end : end + 1] in _SIGNS else _LIKELY
        is_name = best >= threshold or (best >= likely and _opens_note(text, start, end))
        least = _least_chance(name)
        if is_name and best >= _CERTAIN and threshold <= _PLAIN and least < choice.SURE_OF_SEEN:
            names.append((start, end))
            continue
        chance = choice.chance(context | features_of(name, best)) if threshold < NEVER else 0.0
        is_known = is_term(text, (start, end, "NAME"))
        sure = choice.SURE_OF_WORD if situation.is_word else choice.SURE
        sure = choice.SURE_OF_TERM if is_known or _begins_blocked_word(text, start) else sure
        may_add = len(text) < _NOTE and (end - start > 1 or surname_length(text, start) > 0)
        if (chance >= sure and may_add) or (is_name and (chance >= least or (threshold < _SPOKEN and least <= choice.UNLIKELY))):
            names.append((start, end))
        elif end - start > 1 and threshold < NEVER and not is_product(text, start, end):
            nearest, is_seen_alone, is_alone = 0.0, least == choice.SURE_OF_SEEN, least > choice.UNLIKELY
            is_free = not situation.is_word and not is_known and not _is_everyday(text, start, end) and not is_seen_alone
            if is_free and (chance >= choice.DOUBTFUL or not is_alone):
                nearest = best / threshold
            elif best >= (_SURE if is_known else _LIKELY if name.has_surname or not is_alone else _SPOKEN) and _is_unlikely_word(
                text, start, end
            ):
                nearest = max(nearest, _LEFT)
            is_word = situation.is_word or is_known or _begins_word(text, start) or text[start:end] in ordinary_words()
            doubtful = choice.DOUBTFUL_WORD if is_word else choice.DOUBTFUL if name.has_surname else choice.DOUBTFUL_GIVEN
            if chance >= (choice.DOUBTFUL_SEEN if is_seen_alone else doubtful):
                nearest = max(nearest, _LEFT)
            if nearest:
                doubted.append((start, end, nearest))
    return names, doubted


def _is_unlikely_word(text: str, start: int, end: int) -> bool:
    """Whether what the network is sure of is not a word, or stands where a name does."""
    if is_taken_or_ill(text, start, end) or _is_weekday_or_across(text, start):
        return False
    if opens(text, start) and PATIENT_BEHIND.match(text, end) and not is_pair(text, start, often=True):
        return True
    if is_term(text, (start, end, "NAME")) or _begins_word(text, start):
        return False
    return text[start:end] not in ordinary_words() and not any(is_pair(text, index) for index in range(start - 1, end))


def _begins_word(text: str, start: int) -> bool:
    """Whether an everyday word of two characters without a surname begins here: (上文)视."""
    if surname_length(text, start):
        return False
    return text[start : start + 2] in ordinary_words() or is_term(text, (start, start + 2, "NAME"))


def is_titled(text: str, end: int) -> bool:
    """Whether a title, a sex or an age follows: then even the name of a herb is a person's."""
    return TITLED_BEHIND.match(text, end) is not None


def _opens_note(text: str, start: int, end: int) -> bool:
    """Whether a word begins a sentence as a patient's name does, or is given or done something: 高兴术后第一天, 给安康换药."""
    return (
        1 < end - start < 10
        and (opens(text, start) or text[start - 1] in "把给帮替床")
        and text[end - 1] not in "里上下中内外后前时期性化的"
        and not _is_weekday_or_across(text, start)
        and not _begins_blocked_word(text, start, 3)
        and not is_term(text, (start, end, "NAME"))
        and not (end - start > 2 and _begins_word(text, start))
        and PATIENT_BEHIND.match(text, end) is not None
    )


def _is_weekday_or_across(text: str, start: int) -> bool:
    return bool(WEEKDAY_WISH_OR_TOWN.match(text, start) or _is_across_word(text, start))


class NameCandidate:
    """Characters `start` to `end`, which the network takes for a name."""

    __slots__ = ("end", "has_role", "has_surname", "is_blocked", "size", "start", "text")

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.start, self.end, self.size = text, start, end, end - start
        self.has_role = start > 1 and ROLE.search(text, max(0, start - 4), start) is not None
        self.has_surname = surname_length(text, start) > 0
        self.is_blocked = _begins_blocked_word(text, start) or _is_across_word(text, start)

    def behind(self, count: int = 1) -> str:
        return self.text[self.end : self.end + count]

    def before(self, count: int = 1) -> str:
        return self.text[max(0, self.start - count) : self.start]


class Situation(NamedTuple):
    name: str
    example: str
    """The candidate is in braces."""
    applies: Callable[[NameCandidate], bool]
    threshold: float
    """The probability from which the candidate is a name."""
    in_record: float
    """The same in a record or letter about a person."""
    is_word: bool = False
    """Mostly a word: left, it is a reason to doubt only where the network is nearly sure."""


def features_of(name: NameCandidate, best: float) -> dict[str, float]:
    """What `choice` weighs; `best` is the highest probability of the network."""
    text, start, end = name.text, name.start, name.end
    is_opening, is_patient = opens(text, start), PATIENT_BEHIND.match(text, end) is not None
    known = {
        "likely": best > 0.5, "very likely": best > 0.9, "surname": name.has_surname, "role": name.has_role,
        "blocked": name.is_blocked, "word": _is_word(name), "term": is_term(text, (start, end, "NAME")),
        "drug or illness": is_taken_or_ill(text, start, end), "weekday or across": _is_weekday_or_across(text, start),
        "pair": any(is_pair(text, index, often=True) for index in range(start, end - 1)),
        "pair before": start > 0 and is_pair(text, start - 1, often=True),
        "pair behind": end < len(text) and is_pair(text, end - 1, often=True), "opens": is_opening, "patient": is_patient,
        "opens as a patient": is_opening and is_patient, "led": _is_led(name), f"size {min(name.size, 4)}": True,
        "sign behind": name.behind() in _SIGNS, "sign before": name.before() in _SIGNS,
        "title": TITLED_BEHIND.match(text, end) is not None, "says": SAYS.match(text, end) is not None, "in word": _is_in_word(name),
        "function before": name.before() != "" and name.before() in FUNCTION,
        "function behind": name.behind() != "" and name.behind() in FUNCTION,
    }  # fmt: skip
    return {"logit": math.log(best / (1 - best + 1e-6) + 1e-6) / 4} | {feature: float(value) for feature, value in known.items()}


def _is_led(name: NameCandidate) -> bool:
    """Whether a role before it, a title, sex or age behind it, or signs to both sides say that this is a person."""
    if (name.has_role and name.before() not in ":： ") or (name.before(2) in _PATIENT and name.behind() in _SIGNS):
        return True
    if TITLED_BEHIND.match(name.text, name.end):
        return True
    return name.size > 2 and name.behind() in _SIGNS and name.before() in _SIGNS


def _least_chance(name: NameCandidate) -> float:
    """What `choice` must give a candidate that the table of situations takes for a name; more where nothing else names a person."""
    text, start, end = name.text, name.start, name.end
    is_long = len(text) >= _NOTE
    if has_evidence(name):
        return choice.UNLIKELY_IN_LONG if is_long else choice.UNLIKELY
    seen = any(is_seen(text, index) for index in range(start, end - 1))
    across = start > 0 and text[start - 1] not in FUNCTION and is_seen(text, start - 1)
    across = across or (end < len(text) and text[end] not in FUNCTION and is_seen(text, end - 1))
    if seen or across:
        return choice.SURE_OF_SEEN
    return choice.UNLIKELY_IN_LONG_ALONE if is_long else choice.UNLIKELY_ALONE


def has_evidence(name: NameCandidate) -> bool:
    """Whether a role, a title, a verb of saying or the beginning of a note says that this is a person."""
    if name.has_role and name.before() not in ":： ":
        return True
    if name.before(2) in _PATIENT or TITLED_BEHIND.match(name.text, name.end) or SAYS.match(name.text, name.end):
        return True
    seen = any(is_seen(name.text, index) for index in range(name.start, name.end - 1))  # (真诚)的期望
    return not seen and opens(name.text, name.start) and PATIENT_BEHIND.match(name.text, name.end) is not None


def is_taken_or_ill(text: str, start: int, end: int) -> bool:
    """A drug that somebody takes, a brand in brackets behind its substance, or characters of illness: 口服(舒婷), 乳膏(艾洛松)."""
    return bool(
        _ILLNESS.search(text, start, end)
        or _TAKES.search(text, max(0, start - 4), start)
        or _BRAND.search(text, max(0, start - 2), start)
    )


def _is_in_frequent_pair(name: NameCandidate) -> bool:
    """Whether it is, or is cut out of, characters that often stand side by side: 矫正, (亲)戚家, 许多(水)."""
    text, start, end = name.text, name.start, name.end
    if (name.size == 2 and is_pair(text, start, often=True)) or is_taken_or_ill(text, start, end):
        return True
    if name.before(2) in _PATIENT and name.has_surname and not is_pair(text, start):
        return False
    is_word = (
        is_pair(text, start)
        or _REMEDY.match(text, end - 1) is not None
        or is_term(text, (start, start + 2, "NAME"))
        or (name.size > 2 and (is_pair(text, end - 2, often=True) or is_term(text, (start + 1, end, "NAME"))))
        or (start > 0 and text[start - 1] not in FUNCTION and is_pair(text, start - 1))
        or (name.size < 3 and text[end : end + 1] not in FUNCTION and is_pair(text, end - 1, often=True))
    )
    return is_word and not _is_led(name)


def _is_long_blocked(name: NameCandidate) -> bool:
    return _begins_blocked_word(name.text, name.start, 3)


def _is_blocked_person(name: NameCandidate) -> bool:
    ends = name.behind() in _SIGNS  # also at the end of the text
    led = name.has_role and (ends or name.before() not in ":：")
    return name.is_blocked and (led or bool(PERSON_BEHIND.match(name.text, name.end)))


def _is_blocked_alone(name: NameCandidate) -> bool:
    alone = name.size == 3 and name.behind() in _SIGNS
    return name.is_blocked and alone and (name.before() in _SIGNS or name.before(2) in _PATIENT)


def _has_blocked_inside(name: NameCandidate) -> bool:
    inside = range(name.start + 1, name.end)
    return not name.has_surname and any(
        _begins_blocked_word(name.text, index) or _is_across_word(name.text, index) for index in inside
    )


def _is_led_given(name: NameCandidate) -> bool:
    return not name.has_surname and name.has_role and name.size > 1 and name.before() not in ":： "


def _is_given_alone(name: NameCandidate) -> bool:
    ends = name.behind() in _SIGNS or name.behind() in "啊呀吗吧的说"
    starts = name.before() in _SIGNS
    return not name.has_surname and starts and ends and is_given(name.text[name.start : name.end])


def _is_hidden(name: NameCandidate) -> bool:
    return name.text[name.start + 1 : name.start + 2] == "某"


def _is_bare_surname(name: NameCandidate) -> bool:
    return name.size == 1 and not BEHIND_SURNAME.match(name.text, name.end)


def _is_nickname(name: NameCandidate) -> bool:
    led = name.start > 0 and name.before() in BEFORE_SURNAME
    return _is_bare_surname(name) and led and not (name.start > 1 and _HAN.match(name.text[name.start - 2]))


def _is_weekday_wish_or_town(name: NameCandidate) -> bool:
    return WEEKDAY_WISH_OR_TOWN.match(name.text, name.start) is not None


def _is_word(name: NameCandidate) -> bool:
    return name.text[name.start : name.end] in ordinary_words()


def _is_in_word(name: NameCandidate) -> bool:
    """Whether this is the beginning of an ordinary word, or cut out of one."""
    text, start, end, words = name.text, name.start, name.end, ordinary_words()
    return (
        text[start : end + 1] in words
        or text[start : end + 2] in words
        or text[start : start + 2] in words
        or (start > 0 and text[start - 1 : start + 1] in words)
        or text[end - 1 : end + 1] in words
    )


def _says_something(name: NameCandidate) -> bool:
    return bool(SAYS.match(name.text, name.end)) and not _is_in_word(name)


SITUATIONS = (
    Situation(
        "child, animal, number or town", "被{小狗}咬", lambda name: NOBODY.match(name.text, name.start) is not None, NEVER, NEVER
    ),
    Situation("term that can be a name, with a role or a title", "我问了{高敏}护士", _is_blocked_person, 0.75, 0.6),
    Situation("herb or drug of three characters", "口服{何首乌}", _is_long_blocked, 0.98, 0.97, True),
    Situation("term and one character more, between signs", "患者{高热明}，", _is_blocked_alone, 0.9, 0.9),
    Situation("term that begins with a surname", "{高敏}体质", lambda name: name.is_blocked, 0.985, 0.95, True),
    Situation("no surname, with a term inside", "此{刻高热}", _has_blocked_inside, 0.97, 0.9, True),
    Situation("part of a frequent pair of characters", "牙齿{矫正}器", _is_in_frequent_pair, 0.995, 0.99, True),
    Situation("no surname, behind a role", "他爱人{淑芬}说", _is_led_given, 0.4, 0.4),
    Situation("no surname, characters of given names", "，{淑芬}，", _is_given_alone, 0.7, 0.5),
    Situation("no surname", "找{扎西}看病", lambda name: not name.has_surname, 0.95, 0.7),
    Situation("name that is hidden already", "{郑某}来诊", _is_hidden, NEVER, NEVER),
    Situation("surname behind 老 or 小", "，老{汪}来了", _is_nickname, 0.5, 0.5),
    Situation("surname alone", "问{汪}吧", _is_bare_surname, 0.9, 0.9),
    Situation("weekday, wish or town", "{金华}人", _is_weekday_wish_or_town, 0.97, 0.97),
    Situation("ordinary word of three characters", "，{植物油}，", lambda name: name.size >= 3 and _is_word(name), 0.97, 0.97),
    Situation("ordinary word behind a role", "我同事{文安}", lambda name: name.has_role and _is_word(name), 0.15, 0.15),
    Situation("ordinary word", "很{舒心}", _is_word, 0.95, 0.85, True),
    Situation("somebody who says something", "但{彭龙}觉得", _says_something, 0.06, 0.06),
    Situation("behind a role", "一助{彭龙}", lambda name: name.has_role, 0.12, 0.12),
    Situation("part of an ordinary word", "{高挑明}吧", _is_in_word, 0.93, 0.5),
    Situation("anything else with a surname", "请{彭龙}来", lambda _: True, 0.5, 0.2),
)


def situation_of(name: NameCandidate) -> Situation:
    for situation in SITUATIONS:
        if situation.applies(name):
            return situation
    raise AssertionError("the last situation always applies")


def _begins_blocked_word(text: str, start: int, least: int = 2) -> bool:
    """Herbs, drugs, diseases and everyday words of at least so many characters that begin with a surname: 葛根素, 高热, 尚未."""
    blocked = blocked_words()
    four = text[start : start + 4]
    if len(four) > 2 and (four in blocked or four[:3] in blocked):
        return True
    return least < 3 and four[:2] in blocked


def _is_across_word(text: str, start: int) -> bool:
    """Whether the character belongs to the one before it: 上周, 我司."""
    return WORD_ACROSS.match(text[max(0, start - 1) : start + 1]) is not None


def _is_everyday(text: str, start: int, end: int) -> bool:
    """Whether this is, begins with or ends in an ordinary word, or has no surname: not a reason to hold a text back."""
    words, longest = ordinary_words(), min(end + 2, start + LONGEST_WORD)
    return any(text[start:last] in words for last in range(start + 2, longest + 1)) or not surname_length(text, start)
