"""Does the queue pay? Labels it saves a reward model, and errors found per label, beside random choice in the same run.

    python benchmarks/review_queue.py --seeds 5 --out queue.json

Both on made data (the corpus generator of embedded:tiny), where the truth is known:

    labels   2,000 pairs of answers wait. A small reward model (logistic regression on hashed words of the answer, and of question
             with answer) is fitted anew after every 50 labels; the next 50 are chosen at random, by the queue, by the queue
             without its random share, by doubt alone, or by the queue without doubt. Raters are wrong in one pair of ten.
             Measured is the accuracy on 1,500 other pairs, and how many labels each way needs to be as good as random choice.
    errors   2,000 answers of a mostly careful assistant, about a quarter of them dangerous (a red flag not sent to emergency
             care, a risky prescription). The rules score them, some users give thumbs. Measured is how many dangerous ones are
             among the first 100, 200 and 400 that people are shown.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import time
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from medloop.contracts import Message, Sample
from medloop.data.risk import strata_of
from medloop.embedded.corpus import CLINIC, TONGUES, answer_to, ask, draw_case, draw_quality
from medloop.embedded.pairs import generate_pairs
from medloop.feedback.novelty import Seen
from medloop.feedback.propose import Candidate, Signals, choose, spread
from medloop.feedback.queue import WEIGHTS, QueueConfig
from medloop.reward.combine import MixConfig, build_mix

WIDTH = 1 << 15
STEP, LAST = 50, 1000
WAYS = ("random", "queue", "no random", "doubt alone", "no doubt")
WORD = re.compile(r"[\u3400-\u9fff]{2}|[^\W_]+")


@cache
def strata(text: str) -> tuple[Any, ...]:
    return strata_of(text)


@cache
def world(seed: int, size: int) -> tuple[list[dict[str, Any]], Any, Any, Any]:
    """Pairs that wait, features of their answers, and those of the test pairs."""
    pool, test = list(generate_pairs(size, seed=seed)), list(generate_pairs(1500, seed=1000 + seed))
    sides = ("chosen", "rejected")
    better, worse = (matrix([features(p["prompt"], p[side]) for p in pool]) for side in sides)
    good, bad = (matrix([features(p["prompt"], p[side]) for p in test]) for side in sides)
    return pool, better, worse, sparse.csr_matrix(good - bad)


def features(question: str, answer: str) -> set[int]:
    said, asked = set(WORD.findall(answer.lower())), set(WORD.findall(question.lower()))
    crossed = {f"{one}|{two}" for one in asked for two in said}
    return {zlib.crc32(text.encode()) % WIDTH for text in (*said, *crossed)}


def matrix(rows: list[set[int]]) -> sparse.csr_matrix:
    at = [n for n, row in enumerate(rows) for _ in row]
    return sparse.csr_matrix((np.ones(len(at)), (at, [c for row in rows for c in row])), shape=(len(rows), WIDTH))


def fit(difference: sparse.csr_matrix, start: np.ndarray) -> np.ndarray:
    """Bradley-Terry: the chosen answer has the higher score."""

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margin = difference @ weights
        wrong = 1 / (1 + np.exp(np.clip(margin, -30, 30)))
        return float(np.logaddexp(0, -margin).sum() + 1.0 * weights @ weights / 2), -(difference.T @ wrong) + weights

    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 60}).x)


def learning(seed: int, pool_size: int, way: str) -> list[float]:
    """Accuracy after every step of labels."""
    rng = random.Random(seed)
    pool, better, worse, held_out = world(seed, pool_size)
    difference = sparse.csr_matrix(better - worse)
    flipped = np.array([-1.0 if rng.random() < 0.1 else 1.0 for _ in pool])
    left, labelled, weights, curve = set(range(pool_size)), [], np.zeros(WIDTH), []
    seen = Seen()
    for _ in range(LAST // STEP):
        new = pick(way, sorted(left), pool, weights, better, worse, rng, seen)
        labelled += new
        left -= set(new)
        weights = fit(sparse.csr_matrix(sparse.diags(flipped[labelled]) @ difference[labelled]), weights)
        curve.append(float(((held_out @ weights) > 0).mean()))
    return curve


def pick(
    way: str, left: list[int], pool: list[dict[str, Any]], weights: Any, better: Any, worse: Any, rng: Any, seen: Seen
) -> list[int]:
    if way == "random":
        return rng.sample(left, STEP)
    scores = {0: better @ weights, 1: worse @ weights}
    first = {}  # which answer stands first is drawn, as for people; the truth must not leak
    given = []
    for at in left:
        order = (0, 1) if rng.random() < 0.5 else (1, 0)
        first[at] = order
        answers = tuple(pool[at]["chosen" if side == 0 else "rejected"] for side in order)
        given.append(Candidate((Message(role="user", content=pool[at]["prompt"]),), answers, kind="compare"))
    flat = [float(1 / (1 + np.exp(-scores[side][at]))) for at in left for side in first[at]]
    use = {"doubt alone": {"uncertainty": 0.999}, "no doubt": {**WEIGHTS, "uncertainty": 0.0}}.get(way, WEIGHTS)
    config = QueueConfig(size=STEP, weights=use, explore=0.2 if way == "queue" else 0.0)
    room = {name: round(STEP * share) for name, share in config.quotas.items()}
    if way == "doubt alone":
        room = {"routine": STEP}
    signals = Signals((lambda text: ("routine",)) if way == "doubt alone" else strata, values=lambda samples: flat)
    taken = choose(given, signals, room, config, seen)
    place = {(one.asked, tuple(sorted(one.answers))): at for one, at in zip(given, left, strict=True)}
    return [place[(item.content.prompt[0].content, tuple(sorted(item.content.answers)))] for item in taken]


def errors(seed: int, size: int) -> dict[str, dict[int, int] | float]:
    """Dangerous answers among the first that are shown."""
    rng = random.Random(seed)
    given, bad = [], {}
    mix = build_mix(MixConfig())
    while len(given) < size:
        case = draw_case(rng, rng.choice(TONGUES))
        quality = draw_quality(rng, case, CLINIC)
        question, answer = ask(rng, case), answer_to(rng, case, quality)
        danger = quality.risky or (case.flag is not None and quality.emergency == "none")
        reasons = {}
        if rng.random() < (0.3 if danger else 0.1):  # few users say anything, and some complain about good answers
            reasons["thumbs_down"] = 1.0 if rng.random() < (0.7 if danger else 0.3) else 0.0
        gap = spread(mix.score([Sample(id="x", question=question, answer=answer)])[0])
        if gap is not None:
            reasons["disagreement"] = gap
        one = Candidate((Message(role="user", content=question),), (answer,), reasons=reasons)
        if (question, answer) not in bad:
            bad[(question, answer)] = danger
            given.append(one)
    found: dict[str, Any] = {"share": sum(bad.values()) / size}
    for way, weights in {
        "queue": WEIGHTS,
        "no random": WEIGHTS,
        "risk alone": {"risk": 0.999},
        "rules alone": {"disagreement": 0.999},
        "thumbs alone": {"thumbs_down": 0.999},
    }.items():
        config = QueueConfig(size=400, weights=weights, explore=0.2 if way == "queue" else 0.0)
        hits = {}
        for n in (100, 200, 400):
            room = {name: round(n * share) for name, share in config.quotas.items()}
            taken = choose(given, Signals(strata), room, config, Seen())
            hits[n] = sum(bad[(item.content.prompt[0].content, item.content.answers[0])] for item in taken)
        found[way] = hits
    found["random"] = {n: sum(bad[key] for key in rng.sample(list(bad), n)) for n in (100, 200, 400)}
    return found


def mean(values: list[float]) -> str:
    spread_ = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3f} ± {spread_:.3f}"


def needed(curve: list[float], wanted: float) -> int | None:
    """Labels until the accuracy is reached and kept for two steps."""
    for at, value in enumerate(curve[:-1]):
        if value >= wanted and curve[at + 1] >= wanted:
            return (at + 1) * STEP
    return LAST if curve[-1] >= wanted else None


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--seeds", type=int, default=5)
    args.add_argument("--first", type=int, default=0, help="the first seed")
    args.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    args.add_argument("--pool", type=int, default=2000)
    args.add_argument("--out", type=Path)
    given = args.parse_args()
    began = time.process_time()
    ways, seeds = given.ways, range(given.first, given.first + given.seeds)
    curves: dict[str, list[list[float]]] = {way: [] for way in ways}
    for seed in seeds:
        for way in ways:
            curves[way].append(learning(seed, given.pool, way))
    print("accuracy on other pairs after so many labels (mean ± deviation over seeds)")
    print(f"{'':12}" + "".join(f"{n:>16}" for n in (100, 200, 400, 700, 1000)))
    for way in ways:
        print(f"{way:12}" + "".join(f"{mean([c[n // STEP - 1] for c in curves[way]]):>16}" for n in (100, 200, 400, 700, 1000)))
    print("\nlabels for the accuracy that random choice has at 600 labels, per seed")
    for way in ways:
        print(f"{way:12}", [needed(c, curves["random"][at][600 // STEP - 1]) for at, c in enumerate(curves[way])])
    found = [errors(seed, 2000) for seed in seeds]
    print(f"\ndangerous answers found (of {statistics.fmean(one['share'] for one in found):.0%} in the pool), among the first")  # type: ignore[misc]
    print(f"{'':14}" + "".join(f"{n:>10}" for n in (100, 200, 400)))
    for way in ("random", "queue", "no random", "risk alone", "rules alone", "thumbs alone"):
        print(f"{way:14}" + "".join(f"{statistics.fmean(one[way][n] for one in found):>10.1f}" for n in (100, 200, 400)))  # type: ignore[index]
    print(f"\n{time.process_time() - began:.0f} s of processor time")
    if given.out:
        given.out.write_text(json.dumps({"curves": curves, "errors": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
