"""How far the triggers of rules reach: questions in fresh words that they should, and ordinary questions that they should not.

    python benchmarks/repair_reach.py                                                            # 5 corrections a class
    python benchmarks/repair_reach.py --fresh benchmarks/repair_fresh.jsonl --missed             # and which ones are missed
    python benchmarks/repair_reach.py --ordinary zh.jsonl.gz:question en.jsonl.gz:query --sample 20

The rules are those of `medloop codebook propose` from corrections of each class of repair.py; no model answers, so it takes
seconds. A question is reached where a rule may enforce something. `--ordinary` are files of questions of any kind, FILE:FIELD;
some of them are of the class, so a reached one is not yet a false one: `--sample` prints them to be read.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from _repair_classes import CLASSES, MistakeClass, exchanges

from medloop.bootstrap import wilson
from medloop.codebook.retrieve import Retriever
from medloop.contracts import CodebookEntry, Correction
from medloop.lexicon.language import detect_language
from medloop.loop.codebook import propose_new
from medloop.loop.workspace import init_workspace
from medloop.settings import resolve
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.records import codebook, crud

FRESH = Path(__file__).with_name("repair_fresh_2.jsonl")


def rules_of(kind: MistakeClass, n: int, seed: int) -> list[CodebookEntry]:
    """What `codebook propose` makes of n corrections of the planted answer."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        init_workspace(home)
        with open_store(resolve({"home": home}).settings) as store:
            crud.add(store, [
                Correction(prompt=one.question, original=one.bad, golden=one.golden, consent=("training",), recorded_by="usr_1")
                for one in exchanges(kind, n, seed=f"fix{seed}")
            ], actor="benchmark")  # fmt: skip
            propose_new(store, actor="benchmark")
            newest: dict[str, CodebookEntry] = {}
            for entry in codebook.entries(store, state="proposed"):
                newest.setdefault(entry.entry_id, entry)
    return list(newest.values())


def reached(rules: Retriever, question: str) -> bool:
    """Whether a rule may change the answer: its vetted sentence or what it forbids."""
    return any(rule.first_sentence or rule.forbids for rule in rules(question).rules)


def ordinary_questions(sources: list[str]) -> Iterator[str]:
    for source in sources:
        path, _, field = source.rpartition(":")
        with gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8") as lines:
            yield from dict.fromkeys(str(json.loads(line)[field]) for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", type=Path, default=FRESH)
    parser.add_argument("--ordinary", nargs="*", default=[], metavar="FILE:FIELD")
    parser.add_argument("--classes", default=",".join(CLASSES))
    parser.add_argument("--n", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--missed", action="store_true", help="print the questions that are not reached")
    parser.add_argument("--sample", type=int, default=0, help="print so many ordinary questions that are reached, of each class")
    args = parser.parse_args()
    ordinary = list(ordinary_questions(args.ordinary))
    for name in args.classes.split(","):
        entries = rules_of(CLASSES[name], args.n, args.seed)
        rules = Retriever(entries, codebook.sha256_of(entries))
        fresh = [row["question"] for row in jsonl.read(args.fresh) if row["class"] == name]
        good = [question for question in fresh if reached(rules, question)]
        print(f"{name}: {len(entries)} rules, {len(good)}/{len(fresh)} fresh questions reached")
        for question in fresh if args.missed else ():
            if question not in good:
                print(f"  missed: {question}")
        if ordinary:
            hits = [question for question in ordinary if reached(rules, question)]
            low, high = wilson(len(hits), len(ordinary))
            by = {language: sum(detect_language(hit) == language for hit in hits) for language in ("zh", "en")}
            print(f"  ordinary: {len(hits)}/{len(ordinary)} = {100 * len(hits) / len(ordinary):.2f} %"
                  f" ({100 * low:.2f}-{100 * high:.2f}), {by}")  # fmt: skip
            for question in random.Random(1).sample(hits, min(args.sample, len(hits))):
                print(f"    {' '.join(question.split())[:160]}")


if __name__ == "__main__":
    main()
