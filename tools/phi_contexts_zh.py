"""Chinese texts in contexts of others: newspaper sentences in which persons are labelled, and real sentences about relatives.

The names in them are made up, of every kind (tools/phi_names_zh.py): our own sentences teach only the forms that we thought of.
"""

# ruff: noqa: E501
from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from phi_corpus_zh import NAMED, SENTENCE, TCM, Maker, Span
from phi_names_zh import PET

from medloop.privacy.phi.chinese import names, network
from medloop.privacy.phi.normalize import fold

KIN = re.compile(  # words for a person that a name can stand in for
    "(?:(?<![一-鿿])|(?<=[给让把被跟和对是问陪带找哄喂抱叫]))(?:[我他她你]家?(?:妈妈?|爸爸?|母亲|父亲|老公|老婆|儿子|女儿|宝宝|孩子|奶奶|爷爷|朋友|同事|弟弟|妹妹|姐姐|哥哥|外婆|婆婆)"
    "|我家(?:小家伙|小朋友|小子|丫头)|小家伙|孩子|宝宝|宝贝|儿子|女儿|老公|老婆|小朋友|患儿|[他她])(?![们的之人者性一])"
    "|(?:(?<![一-鿿])|(?<=[给让把被跟和对是问陪带找哄喂抱叫而但并])|(?<=但是|可是|所以|因为|如果|后来|结果|而且|然后|现在|虽然|由于|当时|之前|以前|于是|不过|只是|为了|看到|听到|发现|觉得|知道|希望|担心|以为|告诉|同意))"
    "(?:[他她](?![们之人者性一]|的话)|我(?:妈妈?|爸爸?|母亲|父亲|老公|老婆|儿子|女儿|孩子|奶奶|爷爷|男友|女友|对象)(?![们之]))"
)
SOUNDS_LIKE_PET = "宝仔妞崽丫娃蛋哥姐妹弟儿子头"
MEASURED = Path(__file__).parent.parent / "benchmarks/phi_stand_ins.json"
OF_ANY_KIND = 0.35  # share of names in our own sentences that are words and nicknames as often as in those of others
OF_OTHERS = 0.45  # share of texts in contexts of others, for the first network
HOME = "豆乐果米糖圆团妞牛虎欢甜心悦安宁琪萱涵轩晨阳航宸朵贝嘟笑点球壮胖月星雨雪静丽芳敏明强军磊涛超婷娜莹晶燕红兰梅玲可依暖悠宝闹瓜桃柚"


class ContextMaker(Maker):
    """Texts of `Maker`, and those of others."""

    NAMED_SLOTS = Maker.NAMED_SLOTS | {"nick"}

    def __init__(
        self,
        seed: int,
        carriers: Sequence[str],
        tagged: Sequence[tuple[str, list[Span]]],
        reviews: Sequence[str],
        nouns: Sequence[str] = (),
        measured: Collection[str] = (),
    ) -> None:
        """`nouns`: words that somebody may be called by; `measured`: names that serve for measuring and are in no text."""
        super().__init__(seed, carriers)
        self.measured = frozenset(measured)
        self.nouns = [word for word in nouns if word not in self.measured] or self.names.frequent
        self.herbs = [word for word in TCM if len(word) < 4 and word not in self.measured]
        self.news, self.no_news = [row for row in tagged if row[1]], [text for text, spans in tagged if not spans]
        self.reviews, self.about_kin = reviews, [text for text in [*carriers, *reviews] if KIN.search(text)]
        self.common = [word for word in self.frequent if len(word) > 1]

    def slot(self, name: str) -> str:
        if name == "nick":
            return self.nick()
        return self.person() if name == "name" and self.rng.random() < OF_ANY_KIND else super().slot(name)

    def nick(self) -> str:
        """What a child or a grown-up is called at home."""
        rng, r = self.rng, self.rng.random()
        if r < 0.15:
            return rng.choice(PET)
        if r < 0.35:
            return rng.choice(HOME) * 2 if rng.random() < 0.5 else rng.choice(rng.choice(self.nouns)) * 2
        if r < 0.5:
            return rng.choice("小小小大老阿") + (rng.choice(HOME) if rng.random() < 0.4 else rng.choice(self.nouns))[:2]
        if r < 0.6:
            return rng.choice(HOME + rng.choice(self.nouns)) + rng.choice(SOUNDS_LIKE_PET)
        return self.names.long_given() if r < 0.65 else rng.choice(self.nouns)

    def word(self) -> str:
        """A word that somebody is called by: a noun of others, a herb, an everyday word."""
        r = self.rng.random()
        if r < 0.6:
            return self.rng.choice(self.nouns)
        return self.names.word() if r < 0.8 else self.rng.choice(self.herbs) if r < 0.9 else self.rng.choice(self.common)[:3]

    def person(self) -> str:
        while (name := self._person()) in self.measured:
            pass
        return name

    def _person(self) -> str:
        r = self.rng.random()
        if r < 0.42:
            return self.names.whole()
        if r < 0.67:
            return self.nick()
        return self.names.long_given() if r < 0.87 else self.word()

    def printed(self) -> tuple[str, list[Span]]:
        """A sentence of the newspaper with other names in it; a surname alone stays one."""
        text, spans = self.rng.choice(self.news)
        result, put, position = "", list[Span](), 0
        for start, end in spans:
            result += text[position:start]
            kept = self.rng.random() < 0.15
            name = text[start:end] if kept else self.names.surname() if end - start == 1 else self.person()
            put.append((len(result), len(result) + len(name)))
            result, position = result + name, end
        return result + text[position:], put

    def in_place_of_kin(self) -> tuple[str, list[Span]]:
        """A real sentence with a name in the place of a relative or a pronoun."""
        text = self.rng.choice(self.about_kin)
        match = self.rng.choice(list(KIN.finditer(text)))
        name = self.person()
        return text[: match.start()] + name + text[match.end() :], [(match.start(), match.start() + len(name))]

    def of_others(self) -> tuple[str, list[Span]]:
        r = self.rng.random()
        if r < 0.75:
            text, spans = self.printed() if r < 0.4 else self.in_place_of_kin()
            return fold(text), spans
        return fold(self.rng.choice(self.no_news if r < 0.87 else self.reviews)), []

    def text(self) -> tuple[str, list[Span]]:
        return self.of_others() if self.rng.random() < OF_OTHERS else super().text()


def measured_names() -> list[str]:
    """Names that serve for measuring (benchmarks/phi_stand_ins.json)."""
    kinds = json.loads(MEASURED.read_text(encoding="utf-8"))["zh"]
    return [name for names_of_kind in kinds.values() for name in names_of_kind]


def review_sentences(paths: list[Path]) -> list[str]:
    """Sentences of reviews in which neither the first network nor a title says that somebody is named."""
    model, kept = network.load(), dict[str, None]()
    for path in paths:
        for match in SENTENCE.finditer(path.read_text(encoding="utf-8")):
            text = fold(match[0])
            if names._HAN.search(text) and not NAMED.search(text) and not names.candidates(text, model):
                kept[text] = None
    return list(kept)
