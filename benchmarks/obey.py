"""Which rules in its prompt a model obeys, on conditions, questions, sentences and numbers that no training row has.

python benchmarks/obey.py --out obey.json                                   # embedded:obedient, a few minutes on one core
python benchmarks/obey.py --model models/full/my-tiny --out mine.json       # after medloop embedded build

template    the rule is worded as the codebook words it
unseen      the wording of the rule is held out, too
written     template, and the sentences to say are written by hand
fit         share of sentences that fit the question, and of answers that fit entirely; 400 questions without a rule
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from medloop.contracts import Message, ModelRef
from medloop.embedded.rule_rows import KINDS, obeys, unseen_rule_rows
from medloop.embedded.sample import sample_answers
from medloop.models.generate import load_generator
from medloop.settings import Settings

SETS: dict[str, dict[str, bool]] = {"template": {"template": True}, "unseen": {}, "written": {"template": True, "written": True}}
COPIES = ("first", "last", "only", "example")


def number_of(name: str, kind: str) -> int:
    return 24 if kind != "act" else 66 if name == "template" else 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded:obedient")
    parser.add_argument("--out", type=Path, default=Path("obey.json"))
    args = parser.parse_args()
    generate = load_generator(ModelRef(base=args.model), Settings(home=Path()))
    result: dict[str, Any] = {}
    for name, how in SETS.items():
        for kind in COPIES if name == "written" else KINDS:
            rows = list(unseen_rule_rows(number_of(name, kind), seed=11, kind=kind, **how))
            prompts = [tuple(Message(**message) for message in row["messages"][:-1]) for row in rows]
            answers = generate(prompts, max_new_tokens=200, temperature=0.0, seed=0, batch_size=64)
            obeyed = sum(obeys(row, answer.text) for row, answer in zip(rows, answers, strict=True))
            result[f"{name}: {kind}"] = f"{obeyed}/{len(rows)}"
            print(name, kind, result[f"{name}: {kind}"], flush=True)
    for temperature in (0.0, 1.0):
        fits = [answer.coherence for answer in sample_answers(generate, n=400, seed=3, temperature=temperature)]
        result[f"fit at {temperature:g}"] = [sum(fits) / len(fits), sum(fit == 1 for fit in fits) / len(fits)]
    print(json.dumps(result, indent=1))
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
