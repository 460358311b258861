"""Chinese names by both networks: the second drops words that the first takes for names, and adds or doubts what it missed.

Alone the second network is trusted where something says that a person is named (a relative or a verb before it, or the beginning
of a sentence with what a patient has or does behind it), and elsewhere only when it is sure and no list knows the word. Of a long
text it reads what is beside the candidates of the first network.
"""

# ruff: noqa: E501  patterns in long lines are easier to read than in pieces
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from medloop.privacy.phi.allowed import is_term
from medloop.privacy.phi.chinese import choice, names, network, second_choice, second_network, slots
from medloop.privacy.phi.chinese.cues import NOBODY, SAYS, TITLED_BEHIND, WEEKDAY_WISH_OR_TOWN
from medloop.privacy.phi.chinese.extent import FUNCTION, opens
from medloop.privacy.phi.chinese.products import is_product
from medloop.privacy.phi.chinese.words import blocked_words, function_words, is_pair, is_seen, ordinary_words, pair_groups
from medloop.privacy.phi.guards import lazy_pattern

WORD = 0.03  # below this chance a candidate of the first network is a word, unless a title, a sex or an age follows
SURE = 0.85  # from here what the first network missed is a name, where something names a person
SURE_TOGETHER = 0.7  # the same where the first network finds it likely
BOTH, BOTH_FIRST = 0.5, 0.4  # from these chances of the second and the first network it is a name, wherever it stands
ALONE = 0.85  # from this chance of the second network alone
ALONE_IN_LONG = 0.9  # the same in a long text, of the extent that the first one sees
BOTH_OF_WORD = 0.7  # the same of both networks for an ordinary word: (石头)从滑梯上摔了
DOUBTFUL_FIRST = 0.5  # from this chance of the first network alone, where something names a person
SURE_OF_CALLED = 0.5  # the same where the text says that somebody is called so
LIKELY = 0.5
SECONDED = 0.15  # below this chance of the second network, what the first one doubts in a long text is no reason to doubt
NEAR = 0.45  # what comes less close to a name than this is no reason to hold a text
LEFT = 0.5  # how close what is doubted comes to being a name
NOTE = 60  # characters; of a longer text the second network reads only what is around a candidate: all of it would add a third to its time
BESIDE = 20  # characters to each side of such a candidate
LIKELY_IN_LONG = 0.25  # from this chance of the first network
WORD_IN_LONG = 0.2  # below this chance such a candidate is a word, if nothing says that it is a person
_MOST = 20  # candidates; a text with more is full of names
_POSSIBLE, _INSIDE = 0.2, 0.1  # from here a character may begin a candidate, and goes on with it
_LONGEST = 8  # characters of a name
_HAN = lazy_pattern(r"[\u3400-\u9fff]")
_IN_NAME = lazy_pattern(r"[\u3400-\u9fff·•]")
_LED = lazy_pattern(
    "(?:[我你您他她咱俺]家|[我你他她]?(?:爸|妈|姐|妹|哥|弟|姨|叔|舅|姑|婶|嫂)|闺蜜|室友|同桌|发小|战友|老公|老婆|爱人|对象|儿子|女儿|闺女|孙子|孙女|孩子|宝宝|患儿|患者|病人|产妇|[大小乳]名|名字是?|名叫|叫|随访|护工|家里老人)[叫是：: ]?$"
    "|(?:^|[，。,.!！？?；;：: \n])(?:给|请|帮|替|带|陪|抱|喂|哄|找|跟|和|让|听|问|姐，|哥，|昨[天晚]|今[天早晨]|刚才)$"
)
_KIN_BEHIND = lazy_pattern(
    "妈妈?|爸爸?|奶奶|爷爷|姥[姥爷]|[他她](?:妈|爸|爹|娘|姥)|家长|叔|姨|姐|哥|婶|嫂|伯|大[爷妈叔婶娘]|师父|老师|患[儿者]|病人|老人|产妇"
)
_CALLED = lazy_pattern("[大小乳]名[叫是]?$|名叫$|名字[叫是]$")
_NOBODY = lazy_pattern(
    "[家的们才刚不没了着过些很吗呢吧把被得]|点(?!点)|先(?![锋明勇国军平贵])|安慰|请[安转提告]|[一二两三四五六七八九十几]{1,3}[岁个米斤月天年一二三四五六七八九十]"
)
_EVERYDAY = lazy_pattern("救护车|版本|模型|原件|陆续|提问|舌唇|唇舌")  # words that both networks take for names in some places
_COUNTED = lazy_pattern("[一二两三四五六七八九十几多]位")  # 本院五位主任医师
_ILLNESS_BEHIND = lazy_pattern("病(?![了倒重人])|癫痫|氏|综合[征症]|[试实]验|反射|瘤|痣|疹")  # (杰克逊)癫痫, (富贵)病
Candidate = tuple[int, int, float]  # start, end and the highest chance


class SecondOpinion:
    """What the second network makes of a folded text."""

    def __init__(
        self, text: str, model: second_network.SecondNetwork | None = None, around: Sequence[Candidate] | None = None
    ) -> None:
        """`around`: it reads only what is beside these candidates; elsewhere it sees no name."""
        self.text, self.is_long = text, len(text) > NOTE
        self.inside: NDArray[Any]
        self.begins: NDArray[Any]
        model = model or second_network.load()
        if around is None:
            self.inside, self.begins = model.chances(text)
            return
        self.inside, self.begins = np.zeros(len(text), np.float32), np.zeros(len(text), np.float32)
        windows = _windows(around, len(text))
        for (start, end), (inside, begins) in zip(windows, model.chances_of([text[a:b] for a, b in windows]), strict=True):
            self.inside[start:end], self.begins[start:end] = inside, begins

    def without_words(self, spans: Sequence[Candidate]) -> list[Candidate]:
        """The candidates of the first network that may be names."""
        return [
            span
            for span in spans
            if TITLED_BEHIND.match(self.text, span[1]) is not None
            or (self.inside[span[0] : span[1]].max() >= WORD and not self._is_everyday(*span[:2]))
        ]

    def is_word(self, start: int, end: int) -> bool:
        """Whether what a rule takes for a pet name or a nickname is a word to this network: 痒痒, 大姨妈."""
        return bool(self.inside[start:end].max() < WORD)

    def candidates(self) -> list[Candidate]:
        found, done = list[Candidate](), 0
        for first in (self.inside >= _POSSIBLE).nonzero()[0].tolist():
            if first < done or not _HAN.match(self.text, first):
                continue
            end = first + 1
            while end < len(self.text) and end - first < _LONGEST and self.begins[end] < 0.5 and self._goes_on(end):
                end += 1
            done = end
            if end - first > 1:
                found.append((first, end, float(self.inside[first:end].max())))
        return found

    def _goes_on(self, index: int) -> bool:
        return bool(self.inside[index] >= _INSIDE) and _IN_NAME.match(self.text, index) is not None

    def missed(self, chosen: Sequence[tuple[int, int]], first: Sequence[Candidate]) -> tuple[list[tuple[int, int]], float]:
        """The names that are not among those, and how close what is left comes to one; `first`: what the first network sees."""
        added, nearest, known, index, near = list[tuple[int, int]](), 0.0, sorted(chosen), 0, 0
        for start, end, chance in self.candidates():
            while index < len(known) and known[index][1] <= start:
                index += 1
            if index < len(known) and known[index][0] < end:
                is_part = start <= known[index][0] and known[index][1] <= end and known[index] != (start, end)
                if is_part and (chance >= ALONE or self.likelihood(start, end, chance, 1.0) >= second_choice.SURE):
                    added.append((start, end))  # the first network saw a part of it: (查良)镛
                continue
            while near < len(first) and first[near][1] <= start:
                near += 1
            seen = first[near][2] if near < len(first) and first[near][0] < end else 0.0
            if self._is_nobody(start, end):
                continue
            if self._names_person(start, end):
                sure = SURE_TOGETHER if seen >= LIKELY else SURE
                sure = SURE_OF_CALLED if _CALLED.search(self.text, max(0, start - 4), start) else sure
                if chance >= sure and not self._is_known_word(start, end, seen):
                    added.append((start, end))
                    continue
            likelihood = self.likelihood(start, end, chance, seen)
            if names.is_taken_or_ill(self.text, start, end) or _ILLNESS_BEHIND.match(self.text, end):
                likelihood = 0.0  # 吃了(年糕), (克山)病
            if likelihood >= second_choice.SURE and not self._is_term_or_product(start, end):
                added.append((start, end))
                continue
            is_sure = min(chance, seen) >= BOTH_OF_WORD and not self._begins_blocked(start)
            agree = seen >= BOTH_FIRST and first[near][:2] == (start, end)  # else a part of the name would be left
            if self.is_long:
                is_likely = agree and chance >= ALONE_IN_LONG
            else:
                is_likely = chance >= ALONE or (agree and chance >= BOTH)
            if is_likely and self._is_no_word(start, end, is_sure):
                added.append((start, end))
            elif likelihood >= self._doubtful_from(start, end):
                nearest = LEFT
        taken = [*known, *added]
        if nearest < LEFT and any(self._may_name(span) and not _overlaps(span, taken) for span in first):
            nearest = LEFT
        return added, nearest

    def features_of(self, start: int, end: int, chance: float, seen: float) -> dict[str, float]:
        """What `second_choice` weighs; `seen`: the highest chance of the first network there."""
        chances = (chance, float(self.inside[start:end].mean()), float(self.begins[start]))
        return second_choice.features_of(self.text, start, end, chances, seen)

    def likelihood(self, start: int, end: int, chance: float, seen: float) -> float:
        return second_choice.chance(self.features_of(start, end, chance, seen))

    def _may_name(self, span: Candidate) -> bool:
        """Whether the first network alone sees a name where something names a person: (若水)患儿热性惊厥."""
        start, end, chance = span
        if chance < DOUBTFUL_FIRST or end - start < 2 or is_pair(self.text, start, often=True):
            return False
        if self._is_nobody(start, end):
            return False
        return self._names_person(start, end) and not self._is_term_or_product(start, end)

    def _is_nobody(self, start: int, end: int) -> bool:
        """A relative or a patient, what somebody cries or calls for, and everyday words: (母亲), 叫(疼)."""
        text = self.text
        if text[start:end] in function_words() or self._is_everyday(start, end) or slots.ANY_PERSON.fullmatch(text, start, end):
            return True
        if any(words.match(text, start) for words in (_NOBODY, NOBODY, WEEKDAY_WISH_OR_TOWN)) or _COUNTED.search(
            text, start, end
        ):
            return True
        return text[max(0, start - 1) : start] == "叫" and slots.CRIES.search(text, start, end) is not None

    def _is_everyday(self, start: int, end: int) -> bool:
        return any(
            word.start() < end and start < word.end() for word in _EVERYDAY.finditer(self.text, max(0, start - 2), end + 2)
        )

    def _doubtful_from(self, start: int, end: int) -> float:
        if not self._is_like_a_word(start, end):
            return second_choice.DOUBTFUL
        return second_choice.DOUBTFUL_TOPIC if self.text.endswith("问到", 0, start) else second_choice.DOUBTFUL_WORD

    def _is_like_a_word(self, start: int, end: int) -> bool:
        """Whether any two of these characters stand side by side in medical texts or dictionaries: (清楚), (小婴儿), not (晓雅)."""
        pairs = range(start, end - 1)
        return any(is_pair(self.text, index) or is_seen(self.text, index) for index in pairs) or self._is_listed_word(start, end)

    def _is_no_word(self, start: int, end: int, is_sure: bool) -> bool:
        """Whether no list and no count of medical texts knows it as a word, or as part of one: not (灵芝), (宫外)孕, (陆续)做了."""
        text = self.text
        if text[end - 1] == "某" or self._is_term_or_product(start, end) or names.is_taken_or_ill(text, start, end):
            return False
        if _ILLNESS_BEHIND.match(text, end):
            return False
        if not is_sure and (
            self._is_listed_word(start, end) or names.situation_of(names.NameCandidate(text, start, end)).is_word
        ):
            return False
        if any(is_pair(text, index) for index in range(start, end - 1)):
            return False
        return end == len(text) or text[end] in FUNCTION or not is_pair(text, end - 1)

    def _is_listed_word(self, start: int, end: int) -> bool:
        """Whether it is, or begins with, a word of the lists that begins with a surname: (尚安静), (罗汉)果."""
        return self.text[start:end] in ordinary_words() or self._begins_blocked(start)

    def _begins_blocked(self, start: int) -> bool:
        return any(self.text[start:last] in blocked_words() for last in range(start + 2, start + 5))

    def _is_term_or_product(self, start: int, end: int) -> bool:
        return is_term(self.text, (start, end, "NAME")) or is_product(self.text, start, end)

    def _names_person(self, start: int, end: int) -> bool:
        text = self.text
        if _LED.search(text, max(0, start - 6), start) or TITLED_BEHIND.match(text, end):
            return True
        if not opens(text, start):
            return False
        is_patient = names.PATIENT_BEHIND.match(text, end) or _KIN_BEHIND.match(text, end) or SAYS.match(text, end)
        return bool(is_patient) or is_pair(text, end, often=True)  # the next word begins right behind it

    def _is_known_word(self, start: int, end: int, seen: float) -> bool:
        """A word of medicine, or one that is frequent in medical texts and that the first network does not find likely."""
        word = self.text[start:end]
        if is_term(self.text, (start, end, "NAME")) or word in blocked_words():
            return True
        return seen < LIKELY and is_pair(self.text, start, often=True)


def look_ahead(texts: Sequence[str]) -> None:
    """Have the networks read these short folded texts together, which costs less than one by one."""
    chinese = [text for text in texts if _HAN.search(text)]
    if chinese:
        network.load().look_ahead(chinese)
    if notes := [text for text in chinese if len(text) <= NOTE]:
        second_network.load().look_ahead(notes)


def _overlaps(span: Candidate, others: Sequence[tuple[int, int]]) -> bool:
    return any(start < span[1] and span[0] < end for start, end in others)


def chance_around(text: str, start: int, end: int) -> float:
    """How likely characters of a long text are part of a name, by what is around them."""
    first = max(0, start - BESIDE)
    around = SecondOpinion(text[first : end + BESIDE])
    return float(around.inside[start - first : end - first].max())


def _windows(spans: Sequence[Candidate], size: int) -> list[tuple[int, int]]:
    """What is beside these candidates, in order and without overlap."""
    windows = list[tuple[int, int]]()
    for start, end, _ in spans:
        start, end = max(0, start - BESIDE), min(size, end + BESIDE)
        if windows and start <= windows[-1][1]:
            windows[-1] = (windows[-1][0], end)
        else:
            windows.append((start, end))
    return windows


def _without_words(text: str, chosen: Sequence[tuple[int, int]], opinion: SecondOpinion) -> list[tuple[int, int]]:
    """The names of a long text without the words among them."""
    return [
        (start, end)
        for start, end in chosen
        if opinion.inside[start:end].max() >= WORD_IN_LONG or names.has_evidence(names.NameCandidate(text, start, end))
    ]


def opinion_on_long(text: str, first: Sequence[Candidate], chosen: Sequence[tuple[int, int]]) -> SecondOpinion | None:
    """What the second network makes of the places of a long text where somebody may be named; None where there is none, or too many."""
    likely = [span for span in first if span[2] >= LIKELY_IN_LONG or span[:2] in chosen]
    if len(likely) > _MOST:
        return None
    around = sorted([*likely, *_unknown_pairs(text)])
    return SecondOpinion(text, around=around) if around else None


_SPEAKS_OF_SOMEBODY = lazy_pattern("[我他她]|孩子|宝宝|患儿|老公|老婆|爱人|儿子|女儿|[爸妈爷奶]")
_BEGINS_NO_NAME = frozenset(
    FUNCTION + "没很最个着但而且因此只如除此挺哪什咋再更才每其各某些另该并或若虽则咳得吓头血脚背胸腹腰腿膝肝肾肺胃痛癫"
)
_PLACE = lazy_pattern(
    r"(?:(?<![\u4e00-\u9fff])|(?<=[给让把被跟和对是问陪带找哄喂抱叫而但并])|(?<=但是|可是|所以|因为|如果|后来|结果|而且|然后|现在|虽然))[\u4e00-\u9fff]{2}"
)


def _unknown_pairs(text: str) -> Iterator[Candidate]:
    """Where a clause begins, or a verb has somebody behind it: two characters that hardly stand side by side in medical texts."""
    if not _SPEAKS_OF_SOMEBODY.search(text):
        return
    pairs = pair_groups()[2]
    for match in _PLACE.finditer(text):
        if match[0] not in pairs and match[0][0] not in _BEGINS_NO_NAME:
            yield match.start(), match.end(), 0.0


def _choose(text: str, spans: Sequence[Candidate], about_person: bool) -> tuple[list[tuple[int, int]], list[Candidate]]:
    return names.choose(text, spans, about_person or choice.is_record(text)) if spans else ([], [])


def _nearness(doubted: Sequence[Candidate], opinion: SecondOpinion | None = None) -> float:
    """How close the best of these comes to being a name; `opinion`: of a long text, which must find it possible."""
    possible = (near for start, end, near in doubted if opinion is None or opinion.inside[start:end].max() >= SECONDED)
    return max(possible, default=0.0)


def find(text: str, about_person: bool = False) -> tuple[list[tuple[int, int]], float, SecondOpinion | None]:
    """The names of a folded text, how close the best of what was left came to being one (0 to 1), and the second network's view.

    `about_person`: the text is known to be about a person, so that less is asked of a name.
    """
    if not _HAN.search(text):
        return [], 0.0, None
    first = names.candidates(text, network.load())
    if len(text) > NOTE:
        chosen, doubted = _choose(text, first, about_person)
        doubted = [span for span in doubted if span[2] >= NEAR]
        opinion = opinion_on_long(text, first, [*chosen, *((start, end) for start, end, _ in doubted)])
        if opinion is None:
            return chosen, _nearness(doubted), None
        chosen = _without_words(text, chosen, opinion)
        added, doubt = opinion.missed(chosen, first)
        return chosen + added, max(_nearness(doubted, opinion), doubt), None
    opinion = SecondOpinion(text)
    chosen, doubted = _choose(text, opinion.without_words(first), about_person)
    added, doubt = opinion.missed(chosen, first)
    return chosen + added, max(_nearness(doubted), doubt), opinion
