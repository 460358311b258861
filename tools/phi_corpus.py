"""Generate English sentences with marked names, places and organisations from tools/phi_templates_en.txt and the training lists.

Half of the names are invented from letter triples of the lists, so that the tagger learns what a name looks like and where it
stands, not which names exist. The lists hold the training half only (tools/phi_lists.py).
"""

# ruff: noqa: E501
from __future__ import annotations

import gzip
import itertools
import json
import random
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from phi_corpus_words import (
    ABROAD,
    BODIES,
    BRANDS,
    CARE,
    COMPLAINTS,
    DISEASES,
    DRUGS,
    EPONYMS,
    FIELDS,
    GROUPS,
    HEADS,
    KINDS,
    MIDDLES,
    ROADS,
    TAILS,
    TRADES,
)

from medloop.privacy.phi import lists
from medloop.privacy.phi.english.name_words import WORD_NAMES
from medloop.privacy.phi.find import find

HERE = Path(__file__).parent
INITIALS = "ABCDEFGHJKLMNPRSTW"
PINYIN = (
    "wang li zhang liu chen yang zhao huang zhou wu xu sun hu zhu gao lin he guo ma luo liang song zheng xie han tang feng yu xiao mei ling"
    " jing hui fang min jun wei hong yan ping lan qin xia xin yi ying yun zhen hua guo dong bin bo cai chao cheng gang hai jian jie kai lei"
    " ming ning peng qiang rong rui shan shu tao ting wen xiu xue yong zhi ng wong chan cheung lau leung tam kwok mui siu ah kim lee tan ong goh"
).split()
CHOICE, SLOT = re.compile(r"\[([^\[\]]*)\]"), re.compile(r"<(\w+)>")
Span = tuple[int, int, str]
# Words of real texts in whose place, or beside which, somebody's name can stand.
ANCHOR = re.compile(
    r"\b(?:(?P<patient>(?:[Tt]he|[Tt]his) patient|[Pp]atient|[Pp]t)|(?P<doctor>(?:the|my|your|a) doctor)"
    r"|(?P<kin>(?:[Mm]y|[Hh]is|[Hh]er|[Yy]our) (?:mother|mom|father|dad|wife|husband|son|daughter|sister|brother|friend|aunt|uncle))"
    r"|(?:He|She)(?= [a-z]))\b"
)
SENTENCE = re.compile(r"[^.!?\n]{15,220}[.!?\n]?")


def sentences(paths: Sequence[Path], most: int = 1500) -> list[str]:
    """Sentences of the even rows of these JSON lines (`most` rows of a file) in which nobody is named."""
    pieces = dict[str, None]()
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in itertools.islice(file, 0, 2 * most, 2):
                for text in strings(json.loads(line)):
                    pieces.update(dict.fromkeys(match[0].strip() for match in SENTENCE.finditer(text)))
    return [piece for piece in pieces if not any(span.kind == "NAME" for span in find(piece))]


def strings(value: Any) -> Iterable[str]:
    """The texts of a row, without what says where it comes from."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            if key not in {
                "id",
                "source",
                "licence",
                "lang",
                "model",
                "judge",
                "role",
                "department",
                "sub_department",
                "answer_id",
            }:
                yield from strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)


def invented(words: Sequence[str], rng: random.Random) -> Callable[[], str]:
    """A maker of words that look like these, from letter triples."""
    after: dict[str, list[str]] = {}
    for word in words:
        padded = f"^^{word}$"
        for i in range(len(padded) - 2):
            after.setdefault(padded[i : i + 2], []).append(padded[i + 2])

    def make() -> str:
        for _ in range(50):
            letters = "^^"
            while letters[-1] != "$" and len(letters) < 16:
                letters += rng.choice(after[letters[-2:]])
            word = letters[2:].strip("$")
            if 3 <= len(word) <= 13:
                return word
        return "Ada"

    return make


def capital(name: str) -> str:
    return re.sub(r"(?:^|(?<=[ \-'’]))[^\W\d_]", lambda m: m[0].upper(), name)


class Maker:
    """Sentences by the seed. `text()` gives one text of one to four sentences and its spans."""

    def __init__(self, seed: int, carriers: Sequence[str] = ()) -> None:
        self.rng, self.carriers = random.Random(seed), carriers
        world = lists.lines("names_world.txt")
        self.first = [capital(n) for n in (*lists.lines("first_names.txt"), *world)]
        self.last = [capital(n) for n in (*lists.lines("surnames.txt"), *world)]
        self.towns = [capital(n) for n in lists.lines("towns.txt")]
        self.roads = [capital(n) for n in lists.lines("streets.txt")]
        self.countries = [capital(n) for n in lists.lines("countries.txt")]
        self.states = [capital(n) for n in lists.lines("states.txt")]
        self.new_first, self.new_last, self.new_town = (invented(w, self.rng) for w in (self.first, self.last, self.towns))
        self.new_brand = invented(BRANDS, self.rng)
        self.common = [word for word in sorted(lists.tiers()) if len(word) > 2 and word not in lists.word_lists()]
        self.word_names = sorted(capital(name) for name in WORD_NAMES if len(name) > 1)
        self.pieces = dict[str, list[str]]()
        for line in (HERE / "phi_notes_en.txt").read_text(encoding="utf-8").splitlines():
            if line.startswith("== "):
                self.pieces[line[3:]] = []
            elif line[0] != "#":
                self.pieces[list(self.pieces)[-1]].append(line)
        text = (HERE / "phi_templates_en.txt").read_text(encoding="utf-8")
        phi, free = text.split("== free\n")
        self.phi = [line for line in phi.splitlines() if line and line[0] != "#"]
        self.free = free.splitlines()
        if carriers:
            places = (HERE / "phi_places_en.txt").read_text(encoding="utf-8").splitlines()
            self.phi += 3 * [line for line in places if line[0] != "#"]

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def some_first(self) -> str:
        return self.new_first() if self.rng.random() < 0.45 else self.rng.choice(self.first)

    def some_last(self) -> str:
        r = self.rng.random()
        if r < 0.04:
            return self.pick("van der ", "de ", "von ", "van ", "al-", "Mc", "O'", "St. ", "da ", "di ") + self.rng.choice(
                self.last
            )
        return self.new_last() if r < 0.5 else self.rng.choice(self.last)

    def some_town(self) -> str:
        r = self.rng.random()
        if r < 0.25:
            return (
                self.pick("Lake ", "North ", "South ", "New ", "East ", "Port ", "West ", "Saint-", "San ", "Bad ")
                + self.some_first()
            )
        if r < 0.4:
            return self.some_last() + self.pick(
                "ton",
                "ville",
                "burgh",
                "port",
                "mouth",
                "side",
                "berg",
                "stad",
                "dorf",
                "shire",
                "land",
                "view",
                "chester",
                "fort",
            )
        town = self.new_town() if r < 0.65 else self.rng.choice(self.towns)
        return town.upper() if self.rng.random() < 0.12 else town

    def number(self) -> str:
        return str(self.rng.randint(1, self.rng.choice((99, 999, 9999, 99999))))

    def zip(self) -> str:
        five = f"{self.rng.randint(0, 99999):05d}"
        return self.pick(five, five, five, five[:4], f"{five}-{self.rng.randint(0, 9999):04d}", f"SW{five[0]}A {five[1]}AA")

    def road_name(self) -> str:
        r = self.rng.random()
        return self.some_last() if r < 0.5 else self.some_first() if r < 0.8 else self.rng.choice(self.roads)

    def street(self) -> str:
        r = self.rng.random()
        if r < 0.5:
            return f"{self.number()} {self.road_name()} {self.rng.choice(ROADS)}"
        if r < 0.6:
            return f"{self.pick('P.O. Box', 'PO Box', 'Box')} {self.number()}"
        if r < 0.65:
            return f"{self.number()} {self.rng.choice(self.roads)}"
        form = self.rng.choice(ABROAD).format(self.road_name(), self.some_last())
        return f"{form} {self.number()}" if self.rng.random() < 0.7 else f"{self.number()} {form}"

    def flat(self) -> str:
        return f"{self.pick('Apt.', 'Suite', 'Apt', 'Unit', 'Flat', '#', 'Room')} {self.number()}"

    def address(self) -> str:
        r = self.rng.random()
        if r < 0.08:
            return f"{self.pick('USS', 'USNS', 'USNV', 'Unit')} {self.some_last()}\n{self.pick('FPO', 'DPO', 'APO')} {self.pick('AE', 'AA', 'AP')} {self.zip()}"
        if r < 0.2:
            return self.street()
        if r < 0.26:
            return f"the corner of {self.street()} and {self.some_last()} {self.rng.choice(ROADS)}"
        gap = self.pick(", ", ", ", " ", "\n", "\n ")
        parts = [self.street()]
        if self.rng.random() < 0.3:
            parts[0] = f"{self.rng.randint(1, 99):02d} {parts[0]}"
        if self.rng.random() < 0.45:
            parts.append(self.flat()) if self.rng.random() < 0.5 else parts.insert(0, f"{parts.pop()} {self.flat()}")
        parts.append(self.some_town())
        tail = self.rng.random()
        if tail < 0.35:
            parts.append(f"{self.pick('TX', 'CA', 'NY', 'FL', 'WA', 'AK', 'MP', 'GU', 'IL', 'OH')} {self.zip()}")
        elif tail < 0.7:
            parts.append(self.rng.choice(self.countries) + (f" {self.zip()}" if self.rng.random() < 0.6 else ""))
        elif tail < 0.85:
            parts.append(self.zip())
        return gap.join(parts)

    def group(self) -> str:
        r = self.rng.random()
        if r < 0.2:
            return f"{self.some_last()} {self.rng.choice(GROUPS)}"
        if r < 0.35:
            return f"{self.some_last()}, {self.some_last()} and {self.some_last()}"
        if r < 0.45:
            return f"{self.some_last()}{self.pick('-', ' & ', ' and ')}{self.some_last()}"
        if r < 0.6:
            return f"{self.rng.choice(TRADES)} {self.rng.choice(TRADES)} {self.rng.choice(GROUPS)}"
        if r < 0.75:
            return self.rng.choice(TRADES) + self.pick(
                "ly", "ify", "list", "guard", "hub", "works", "nomics", "bank", "star", "tree", "mine", "fund", "wise", "case"
            )
        if r < 0.82:
            return f"{self.rng.choice(TRADES)} {self.pick('Explorer', 'Nation', 'Club', 'Insights', 'Seed', 'Robotics', 'Works', 'Street', 'Harbor', 'Logic')}"
        if r < 0.9:
            return self.new_last() + self.pick("", "a", "co", "tech", "soft", "gen", "ix", " Group")
        if r < 0.94:
            return f"{self.some_town()} {self.pick('University', 'College', 'High School', 'Bank', 'Airlines', 'Council')}"
        return f"{self.pick('Department', 'Institute', 'Bureau', 'Ministry', 'Bank', 'Church')} of {self.rng.choice(TRADES)} {self.pick('Technology', 'Services', 'Research', 'Affairs', 'Studies')}"

    def whole_name(self) -> str:
        r = self.rng.random()
        first, last = self.some_first(), self.some_last()
        if r < 0.12:
            return first
        if r < 0.22:
            return last
        if r < 0.3:
            return f"{first} {self.rng.choice('ABCDEFGHJKLMNPRSTW')}. {last}"
        if r < 0.36:
            return f"{first} {self.some_first()} {last}"
        if r < 0.41:
            return f"{first} {last}-{self.some_last()}"
        if r < 0.45:
            return f"{self.rng.choice('ABCDEFGHJKLMNPRST')}. {last}"
        return f"{first} {last}"

    def note_name(self) -> str:
        """Somebody as a note of a ward names them: whole, by one name, by a word that is a name, by initials, in pinyin."""
        rng, r = self.rng, self.rng.random()
        if self.carriers and rng.random() < 0.05:  # any word can be a name; only its place tells
            word = rng.choice(self.common)
            return word.capitalize() if rng.random() < 0.8 else f"{word.capitalize()} {self.some_last()}"
        if r < 0.3:
            return self.some_first()
        if r < 0.42:
            return self.some_last()
        if r < 0.56:
            return rng.choice(self.word_names)
        if r < 0.6:
            return f"{rng.choice(self.word_names)} {self.some_last()}"
        if r < 0.63:
            return f"{''.join(f'{rng.choice(INITIALS)}.' for _ in range(rng.choice((1, 2, 3))))} {self.some_last()}"
        if r < 0.66:
            return f"{self.some_last()} {rng.choice(INITIALS)}."
        if r < 0.71:
            parts = rng.sample(PINYIN, rng.choice((2, 3)))
            return " ".join(map(str.capitalize, parts)) if rng.random() < 0.5 else f"{parts[0]} {''.join(parts[1:])}".title()
        if r < 0.75:
            joint = self.pick(
                "ibn", "bin", "bint", "al-", "del", "de la", "van", "van der", "von", "da", "dos", "Mac", "Ní", "O'"
            )
            return f"{self.some_first()} {joint}{'' if joint[-1] in chr(39) + '-' else ' '}{self.some_last()}"
        if r < 0.79:
            return f"{self.some_first()} {self.some_first()} {self.some_last()}" + (f" {self.some_last()}" if r < 0.77 else "")
        if r < 0.82:
            return f"{self.some_last()}-{self.some_last()}"
        return self.whole_name()

    def slot(self, name: str) -> tuple[str, str]:
        """The filling of a slot and its tag ("" for what is not an identifier, or is one that patterns find)."""
        rng = self.rng
        match name:
            case "name":
                return self.whole_name(), "NAME"
            case "who":
                return self.note_name(), "NAME"
            case "WHO":
                return self.note_name().upper(), "NAME"
            case "state" | "does" | "lead" | "clean":
                return self.sentence(rng.choice(self.pieces[name]))[0], ""
            case "first":
                return self.some_first(), "NAME"
            case "last":
                return self.some_last(), "NAME"
            case "lastfirst":
                return f"{self.some_last()}, {self.some_first()}", "NAME"
            case "city":
                return self.some_town(), "PLACE"
            case "place":
                return (
                    self.some_town()
                    if rng.random() < 0.6
                    else rng.choice(self.countries)
                    if rng.random() < 0.7
                    else rng.choice(self.states)
                ), "PLACE"
            case "street":
                return self.street(), "PLACE"
            case "streetname":
                return self.road_name(), "PLACE"
            case "address":
                return self.address(), "PLACE"
            case "apt":
                return self.flat(), "PLACE"
            case "num":
                return self.number(), "PLACE"
            case "zip":
                return self.zip(), "PLACE"
            case "land":
                return rng.choice(self.countries), "PLACE"
            case "state":
                return rng.choice(self.states), "PLACE"
            case "state2":
                return self.pick("TX", "CA", "NY", "WLG", "NSW", "BC", "IL", "GA", "Ontario"), "PLACE"
            case "org":
                return self.group(), "ORG"
            case "hospital":
                head = self.pick(
                    self.some_town(),
                    self.some_last(),
                    f"St. {self.some_first()}'s",
                    f"St. {self.some_first()}",
                    self.rng.choice(self.countries),
                )
                return f"{head} {rng.choice(CARE)}", "ORG"
        return self.plain(name), ""

    def medical(self) -> str:
        """A word of Greek and Latin pieces that hardly any list holds."""
        return (
            self.rng.choice(HEADS)
            + self.rng.choice(MIDDLES)
            + self.pick("", "o" + self.rng.choice(MIDDLES))
            + self.rng.choice(TAILS)
        )

    def headline(self) -> str:
        words = [
            self.rng.choice((self.medical(), self.rng.choice(self.common), self.rng.choice(self.common), self.rng.choice(DRUGS)))
            for _ in range(self.rng.randint(1, 6))
        ]
        small = self.rng.random() < 0.3
        return " ".join(w if small and i else capital(w) for i, w in enumerate(words))

    def body(self) -> str:
        first, second = (self.rng.choice(FIELDS).replace("#", " ") for _ in range(2))
        return self.rng.choice(BODIES).format(first, second)

    def plain(self, name: str) -> str:
        rng = self.rng
        eponym = (
            rng.choice(EPONYMS)
            if rng.random() < 0.5
            else self.some_last()
            if rng.random() < 0.7
            else f"{self.some_last()}-{self.some_last()}"
        )
        disease = (
            rng.choice(DISEASES)
            if rng.random() < 0.35
            else self.medical()
            if rng.random() < 0.4
            else f"{eponym}{self.pick(chr(39) + 's', '', '')} {rng.choice(KINDS)}"
        )
        month = self.pick("January", "March", "June", "August", "October", "December")
        known = {
            "disease": disease,
            "Disease": disease[0].upper() + disease[1:] if rng.random() < 0.6 else capital(disease),
            "DISEASE": disease.upper(),
            "drug": rng.choice(DRUGS) if rng.random() < 0.6 else rng.choice(BRANDS) if rng.random() < 0.6 else self.new_brand(),
            "Drug": rng.choice(DRUGS).capitalize() if rng.random() < 0.6 else rng.choice(BRANDS),
            "brand": rng.choice(BRANDS) if rng.random() < 0.6 else self.new_brand(),
            "med": self.medical(),
            "Med": self.medical().capitalize(),
            "head": self.headline(),
            "body": self.body(),
            "abbr": "".join(rng.choice("ABCDEFGHILMNPRSTV") for _ in range(rng.randint(2, 5))),
            "word": rng.choice(self.common),
            "Word": rng.choice(self.common).capitalize(),
            "x": f"{rng.choice((rng.randint(0, 9), rng.randint(10, 999), rng.randint(100, 30000)))}",
            "eponym": f"{eponym} {rng.choice(KINDS)}",
            "gene": self.pick("BRCA1", "CFTR", "TP53", "FMR1", "HBB", "MECP2", "PTEN", "APOE", "DMD", "COL1A1", "SCN1A"),
            "complaint": rng.choice(COMPLAINTS),
            "country": rng.choice(self.countries)
            if rng.random() < 0.6
            else self.pick("the United States", "the U.S.", "the US", "the United Kingdom"),
            "n": str(rng.randint(2, 99)),
            "date": self.pick("03/14/2016", "2019-04-02", "March 3, 2011", "12 May 2020"),
            "month": month,
            "dow": self.pick("Monday", "Friday", "Sunday"),
            "phone": f"({rng.randint(200, 999)}) {rng.randint(200, 999)}-{rng.randint(0, 9999):04d}",
            "email": f"user{rng.randint(1, 999)}@mail.example.com",
            "code": f"{rng.randint(10**7, 10**9)}",
            "initial": rng.choice("ABCDEFGHJKLMNPRST"),
            "prefix": self.pick("Mr.", "Mrs.", "Ms.", "Miss", "Dr."),
        }
        return known[name]

    def sentence(self, template: str) -> tuple[str, list[Span]]:
        while True:
            chosen = CHOICE.sub(lambda m: self.rng.choice(m[1].split("|")), template)
            if chosen == template:
                break
            template = chosen
        template = template.replace("\\n", "\n").replace("\\t", "\t")
        text, spans, position = "", [], 0
        for match in SLOT.finditer(template):
            text += template[position : match.start()]
            filling, tag = self.slot(match[1])
            if tag:
                spans.append((len(text), len(text) + len(filling), tag))
            text += filling
            position = match.end()
        return text + template[position:], spans

    def carried(self) -> tuple[str, list[Span]]:
        """A real sentence with a name where it speaks of a person."""
        text, rng = self.rng.choice(self.carriers), self.rng
        spots = list(ANCHOR.finditer(text))
        if not spots:
            return text, []
        spot = rng.choice(spots)
        name, word, r = self.note_name(), spot[0], rng.random()
        if spot["doctor"]:
            before, name, behind = self.pick("Dr. ", "Dr ", "doctor "), self.some_last(), ""
        elif spot["kin"]:
            before, behind = (word + ", ", ",") if r < 0.3 else (word + " ", "")
        elif spot["patient"] and r < 0.3:
            before, behind = word + self.pick(" ", ", ", " named "), ""
        else:
            before, behind = "", self.pick("", "", "", "", ", " + self.pick("who is", "a") + " " + rng.choice(self.common))
        start = spot.start() + len(before)
        whole = text[: spot.start()] + before + name + behind + text[spot.end() :]
        return whole, [(start, start + len(name), "NAME")]

    def text(self) -> tuple[str, list[Span]]:
        text, spans = "", list[Span]()
        share = self.rng.choice((0.0, 0.3, 0.5, 0.7, 1.0))
        for _ in range(self.rng.choice((1, 1, 2, 2, 3, 4))):
            source = self.phi if self.rng.random() < share else self.free
            sentence, sentence_spans = self.sentence(self.rng.choice(source))
            if self.carriers and self.rng.random() < 0.3:
                has_name = self.rng.random() < share
                sentence, sentence_spans = self.carried() if has_name else (self.rng.choice(self.carriers), [])
            text += "" if not text else self.pick(" ", " ", "\n")
            spans += [(start + len(text), end + len(text), tag) for start, end, tag in sentence_spans]
            text += sentence
        r = self.rng.random()
        if r < 0.16 and len(text.lower()) == len(text):
            text = text.lower()
        elif r < 0.19 and len(text.upper()) == len(text):
            text = text.upper()
        return text, spans
