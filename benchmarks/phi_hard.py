"""How the PHI scrubber does on hard sentences: unusual names, foreign ids, disguised forms, and clean visit notes.

    python benchmarks/phi_hard.py --data hard.jsonl                # recall by kind, quarantine, clean notes held
    python benchmarks/phi_hard.py --data benchmarks/phi_hard/blind.jsonl --half even       # the half that was never read
    python benchmarks/phi_hard.py --free dialogue.jsonl.gz --field answer --replaced 100   # a sample to be judged by a person
    python benchmarks/phi_hard.py --plant dialogue.jsonl.gz --field question --lang zh     # made-up names in real sentences
    python benchmarks/phi_hard.py --plant dialogue.jsonl.gz --field question --stand-in    # in the place of "she" or "my son"
    python benchmarks/phi_hard.py --speed                          # processor time: dense texts, and 80,000 characters of names

A data file has one object a line: id, text, lang, part (hid or disguised: a disguised identifier), spans [{start, end, type}]. A
text without spans is a clean note. A span is found when each of its words (Chinese: characters) is replaced, whatever the kind.
In brackets: 95 % confidence (Wilson). `--misses` prints what was missed, for a set that may be looked at.
"""

import argparse
import gzip
import json
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from medloop.bootstrap import wilson
from medloop.privacy.phi import lists
from medloop.privacy.phi.scrub import Scrubber, assess
from medloop.privacy.phi.spans import PhiSpan

TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff_]+")
GIVEN = "芳伟娜敏静丽强磊军洋勇艳杰娟涛明超秀霞平刚桂英华玉兰红梅国建文志春海燕林鹏宇"


def rows_of(path: Path) -> list[dict[str, Any]]:
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
    with opened as file:
        return [json.loads(line) for line in file if line.strip()]


def share(hits: int, total: int) -> str:
    if not total:
        return "–"
    low, high = wilson(hits, total)
    return f"{hits} of {total} = {hits / total:.3f} ({low:.3f}–{high:.3f})"


def is_covered(text: str, start: int, end: int, spans: Iterable[PhiSpan]) -> bool:
    """Whether every word of the span is touched by what was replaced."""
    spans = list(spans)
    tokens = list(TOKEN.finditer(text, start, end))
    return bool(tokens) and all(any(s.start < t.end() and s.end > t.start() for s in spans) for t in tokens)


def measure(rows: list[dict[str, Any]], show: bool) -> dict[str, list[int]]:
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    def count(name: str, hit: bool) -> None:
        counts[name][0] += hit
        counts[name][1] += 1

    for row in rows:
        text, lang, result = row["text"], row["lang"], assess(row["text"])
        whole = "" if result.cleaned or not text else text  # could not be scrubbed: held, and nothing of it goes out
        missed = [s for s in row["spans"] if not is_covered(text, s["start"], s["end"], result.spans)]
        if row["part"] in ("hid", "disguised"):
            if missed:
                count(f"disguised and not replaced: held {lang}", result.quarantined)
            count(f"disguised: replaced or held {lang}", not missed or result.quarantined)
        elif row["spans"]:
            for span in row["spans"]:
                count(f"{span['type']} {lang}", bool(whole) or span not in missed)
            if missed and not whole:
                count(f"leaking: held {lang}", result.quarantined)
        else:
            count(f"{row['part']} notes held {lang}", result.quarantined)
            count(f"{row['part']} notes changed {lang}", bool(result.spans))
        if show and (missed or (not row["spans"] and (result.spans or result.quarantined))):
            words = [text[s["start"] : s["end"]] for s in missed] or [text[s.start : s.end] for s in result.spans]
            print(f"  {row.get('id', '')} {row['part']} {result.doubt:.2f} {words} | {text[:150]!r} {result.reasons}")
    return counts


def sample_replaced(rows: list[dict[str, Any]], field: str, size: int, seed: int) -> None:
    """Random replacements with what stands beside them."""
    replaced, texts = list[str](), 0
    for row in rows:
        for text in _texts(row.get(field)):
            texts += 1
            for span in assess(text).spans:
                before, behind = text[max(0, span.start - 25) : span.start], text[span.end : span.end + 25]
                replaced.append(f"{span.kind}: {before}[[{text[span.start : span.end]}]]{behind}".replace("\n", " "))
    random.Random(seed).shuffle(replaced)
    print(f"{texts} texts, {len(replaced)} replacements")
    print("\n".join(replaced[:size]))


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)


ANCHORS = {
    "zh": re.compile(
        "患者|病人|我妈妈|我爸爸|我妈|我爸|我老公|我老婆|老公|爱人|女儿|儿子|我朋友|同事|邻居|奶奶|爷爷|姐姐|弟弟|妹妹|我叫"
    ),
    "en": re.compile(
        r"\b(?:[Tt]he patient|[Mm]y (?:mother|father|wife|husband|son|daughter|sister|brother)|[Dd]octor|[Mm]iss|[Mm]ister)\b"
    ),
}
STAND_INS = {  # words in whose place a name can stand: a clause begins with them, or they follow a verb
    "zh": re.compile(
        "(?:(?<![一-鿿])|(?<=[给让把被跟和对是问陪带找]))"
        "(?:我(?:家)?(?:妈妈|爸爸|母亲|父亲|老公|老婆|儿子|女儿|孩子|宝宝|奶奶|爷爷|朋友|同事)|孩子|宝宝|患儿|儿子|女儿|老公|老婆|[他她])(?![们的之一]|[一-鿿]{0,2}(?:吗|呢))"
    ),
    "en": re.compile(
        r"(?:^|(?<=[.?!,;] ))"
        r"(?:[Ss]?[Hh]e|My (?:mother|father|wife|husband|son|daughter|sister|brother)|The patient)(?= [a-z]{2})"
    ),
}
MINORITY = ("阿依努尔·艾尔肯", "玉素甫·卡迪尔", "巴特尔", "卓玛央金", "热娜·吐尔地", "哈斯其其格", "约瑟夫·米勒", "凯特·汉森")
PET = ("蛋蛋", "糖糖", "丫丫", "小米粒", "小石头")


def planted_name(rng: random.Random, lang: str, held_out: dict[str, list[str]]) -> tuple[str, str]:
    """A made-up name and its style; no list of the scrubber holds its given name."""
    style = rng.choice(
        ("plain", "plain", "plain", "rare", "spaced", "minority", "pinyin") if lang == "zh" else ("plain", "small", "first")
    )
    if lang == "en":
        first, last = rng.choice(held_out["first"]), rng.choice(held_out["last"])
        return {"plain": f"{first} {last}", "small": f"{first} {last}".lower(), "first": first}[style], style
    surnames = lists.lines("surnames_zh.txt")
    surname = rng.choice(surnames[:60] if style in ("plain", "spaced") else surnames[60:])
    name = surname + rng.choice(held_out["given_zh"])
    if style == "spaced":
        name = " ".join(name)
    if style == "minority":
        name = rng.choice(MINORITY)
    if style == "pinyin":
        name = rng.choice(("Chen Yiming", "liu meiling", "Zhao Guoqiang", "wang xiao yan", "Sun Lihua", "huang zhiwei"))
    return name, style


def plant(
    rows: list[dict[str, Any]], field: str, lang: str, count: int, seed: int, stand_in: bool = False
) -> list[dict[str, Any]]:
    """Names behind the words for a person in real sentences, or in their place, one each. Even rows were used for tuning."""
    rng, planted = random.Random(seed), list[dict[str, Any]]()
    held_out = json.loads((Path(__file__).parent / "phi_held_out.json").read_text(encoding="utf-8"))
    sentences = [
        s for row in rows[1::2] for text in _texts(row.get(field)) for s in re.split(r"(?<=[。！？!?\n])|(?<=[.?!] )", text)
    ]
    rng.shuffle(sentences)
    stand_ins = json.loads((Path(__file__).parent / "phi_stand_ins.json").read_text(encoding="utf-8"))[lang]
    for sentence in sentences:
        anchor = (STAND_INS if stand_in else ANCHORS)[lang].search(sentence) if 12 <= len(sentence) <= 160 else None
        if anchor is None or assess(sentence).spans:
            continue
        if stand_in:
            style = rng.choice(sorted(stand_ins))
            before, name = sentence[: anchor.start()], rng.choice(stand_ins[style])
        else:
            before = sentence[: anchor.end()] + (" " if lang == "en" else "")
            name, style = planted_name(rng, lang, held_out)
        span = {"start": len(before), "end": len(before) + len(name), "type": f"NAME {style}"}
        planted.append({"part": "names", "text": before + name + sentence[anchor.end() :], "lang": lang, "spans": [span]})
        if len(planted) == count:
            break
    return planted


def names(count: int, chinese: bool) -> str:
    rng, text = random.Random(1), ""
    first, last, surnames = (lists.lines(f"{name}.txt") for name in ("first_names", "surnames", "surnames_zh"))
    while len(text) < count:
        if chinese:
            text += f"患者{rng.choice(surnames)}{rng.choice(GIVEN)}{rng.choice(GIVEN)}，"
            text += f"家属{rng.choice(surnames)}{rng.choice(GIVEN)}来电。"
        else:
            text += f"Dr. {rng.choice(first).title()} {rng.choice(last).title()} called {rng.choice(first).title()} today. "
    return text[:count]


def speed() -> None:
    for chinese in (True, False):
        assess(names(500, chinese))
        for count in (20_000, 80_000):
            text = names(count, chinese)
            started = time.process_time()
            Scrubber().assess(text)
            seconds = time.process_time() - started
            size = len(text.encode()) / 1000
            print(
                f"{'zh' if chinese else 'en'} {count:,} characters of names: {seconds:.2f} s, {1000 * seconds / size:.1f} ms/kB"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--half", choices=("odd", "even"), help="Only rows with such an id.")
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--free", type=Path)
    parser.add_argument("--plant", type=Path)
    parser.add_argument("--stand-in", action="store_true", help="Names in the place of the words for a person.")
    parser.add_argument("--lang", default="zh", choices=("zh", "en"))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--field", default="text")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--replaced", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args()
    sentences = (
        plant(rows_of(given.plant), given.field, given.lang, given.count, given.seed, given.stand_in) if given.plant else []
    )
    if given.data or sentences:
        rows = (rows_of(given.data) if given.data else []) + sentences
        rows = [row for row in rows if given.half is None or row["id"] % 2 == (given.half == "odd")]
        for name, (hits, total) in sorted(measure(rows, given.misses).items()):
            print(f"{name:<36}{share(hits, total)}")
    if given.free:
        sample_replaced(rows_of(given.free)[: given.rows], given.field, given.replaced, given.seed)
    if given.speed:
        speed()


if __name__ == "__main__":
    main()
