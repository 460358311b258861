"""Does the queue pay? Labels it saves a reward model, and harm found per label, beside random choice in the same run.

    python benchmarks/review_queue.py --seeds 10 --out queue.json
    python benchmarks/review_queue.py --pairs people.jsonl.gz --noise 0 --skip-harm

labels   Pairs of answers wait, and the next 25 are asked by turns: at random, by the queue as it is, by the queue without
         its lot, or by doubt alone. After each turn a small reward model (a Bradley-Terry head on 256 factors of the
         words) is fitted anew. Measured is its accuracy on held-out pairs of other questions, and how many labels each way needs
         for the accuracy that random choice has at two thirds of its labels. Pairs are made by the generator of embedded:tiny
         with one label in ten wrong, or come from a file with prompt, chosen and rejected.
harm     2,000 answers of a mostly careful assistant, about a quarter of them dangerous (a red flag not sent to emergency care, a
         risky prescription). The rules score them, some users give thumbs. Measured is how many dangerous ones are among the
         first 100, 200 and 400 that people are shown.

Prints JSON. Intervals: 95 %, bootstrap over seeds; a seed is another split, other wrong labels and another lot.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import svds

from medloop.contracts import Message, Sample
from medloop.data.text.risk import strata_of
from medloop.embedded.corpus import CLINIC, TONGUES, answer_to, ask, draw_case, draw_quality
from medloop.embedded.pairs import generate_pairs
from medloop.feedback.review import active_learning, lanes
from medloop.feedback.review.lanes import QueueCandidate, Signals, choose_batch
from medloop.feedback.review.novelty import SeenQuestions, word_set
from medloop.feedback.review.propose import disagreement
from medloop.feedback.review.queue import QueueConfig
from medloop.reward.mix import MixConfig, build_mix

Array = NDArray[np.float64]
FACTORS, HASHES, PULL = 256, 1 << 15, 2.0
STEP = 25
SHOWN = (100, 200, 400)
WAYS: dict[str, QueueConfig | None] = {
    "random": None,
    "queue": QueueConfig(size=STEP),
    "queue, no lot": QueueConfig(size=STEP, explore=0),
    "doubt alone": QueueConfig(size=STEP),
}
HARM: dict[str, QueueConfig] = {
    "queue": QueueConfig(),
    "queue with a reward model": QueueConfig(),
    "safety lane alone": QueueConfig(explore=0, learn=0),
    "risk alone": QueueConfig(explore=0, learn=0, weights={"risk": 0.999}),
    "rules alone": QueueConfig(explore=0, learn=0, weights={"disagreement": 0.999}),
    "thumbs alone": QueueConfig(explore=0, learn=0, weights={"thumbs_down": 0.999}),
}


@cache
def strata(text: str) -> tuple[Any, ...]:
    return strata_of(text)


def made_pairs(count: int, seed: int) -> list[tuple[str, str, str]]:
    return [(row["prompt"], row["chosen"], row["rejected"]) for row in generate_pairs(count, seed=seed)]


def pairs_of(path: Path) -> list[tuple[str, str, str]]:
    """Pairs of a file; the prompt is a text, or messages of which the last counts."""
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
    with opened as lines:
        rows = [json.loads(line) for line in lines]
    asked = [row["prompt"] if isinstance(row["prompt"], str) else row["prompt"][-1]["content"] for row in rows]
    return [
        (prompt, row["chosen"], row["rejected"])
        for prompt, row in zip(asked, rows, strict=True)
        if row["chosen"] != row["rejected"]
    ]


def differences(pairs: Sequence[tuple[str, str, str]], *, crossed: bool) -> Array:
    """What the reward model reads of each pair: chosen less rejected, in factors of all words (no label is used), and length."""
    texts = [(pair[0], pair[side]) for side in (1, 2) for pair in pairs]
    rows = [_hashes(question, answer, crossed) for question, answer in texts]
    at = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    table = sparse.csr_matrix((np.ones(len(at)), (at, [code for row in rows for code in row])), shape=(len(rows), HASHES))
    rare = np.log((1 + len(rows)) / (1 + np.asarray(table.sum(0)).ravel()))
    table = sparse.csr_matrix(table @ sparse.diags(rare))
    table = sparse.diags(1 / (np.sqrt(np.asarray(table.multiply(table).sum(1)).ravel()) + 1e-9)) @ table
    left, size, _ = svds(table, k=min(FACTORS, len(rows) - 1), random_state=0)
    found = (left * size)[: len(pairs)] - (left * size)[len(pairs) :]
    found *= 4 / np.linalg.norm(found, axis=1).mean()
    longer = np.array([np.log1p(len(chosen)) - np.log1p(len(rejected)) for _, chosen, rejected in pairs])
    return np.column_stack([found, longer / (2 * longer.std() + 1e-9)])


def _hashes(question: str, answer: str, crossed: bool) -> set[int]:
    said = word_set(answer)
    both = {f"{one}|{two}" for one in word_set(question) for two in said} if crossed else set()
    return {zlib.crc32(text.encode()) % HASHES for text in (*said, *both)}


def fit(margins: Array, start: Array) -> Array:
    """Bradley-Terry: the chosen answer has the higher score."""

    def loss(weights: Array) -> tuple[float, Array]:
        margin = margins @ weights
        wrong = 1 / (1 + np.exp(np.clip(margin, -30, 30)))
        return float(np.logaddexp(0, -margin).sum() + PULL * weights @ weights / 2), -(margins.T @ wrong) + PULL * weights

    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x)


def learning(seed: int, way: str, pairs: Sequence[tuple[str, str, str]], reads: Array, given: argparse.Namespace) -> list[float]:
    """Accuracy on the held-out pairs after every turn."""
    rng = np.random.default_rng(seed)
    pool, test = split(pairs, rng, given.pool)
    label = np.where(rng.random(len(pairs)) < given.noise, -1.0, 1.0)[:, None] * reads
    turned = rng.random(len(pairs)) < 0.5  # which answer stands first is drawn, as for people; the truth must not leak
    rng = np.random.default_rng((seed, zlib.crc32(way.encode())))
    left, asked, weights, curve = pool, list[int](), np.asarray(np.zeros(reads.shape[1])), list[float]()
    while len(asked) < min(given.labels, 3 * len(pool) // 4):
        new = pick(way, left, asked, pairs, turned, reads @ weights, rng)
        asked += new
        left = np.setdiff1d(left, new)
        weights = fit(label[asked], weights)
        curve.append(float((reads[test] @ weights > 0).mean()))
    return curve


def split(pairs: Sequence[tuple[str, str, str]], rng: np.random.Generator, most: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Places of pairs that wait and of held-out ones; no question is on both sides."""
    names = {question: at for at, question in enumerate(dict.fromkeys(pair[0] for pair in pairs))}
    rank = rng.permutation(len(names))
    place = np.array([rank[names[pair[0]]] for pair in pairs]) / len(names)
    waiting = np.flatnonzero(place < 0.65)
    return np.sort(rng.permutation(waiting)[:most]), np.flatnonzero(place >= 0.65)[:1500]


def pick(
    way: str, left: NDArray[Any], asked: list[int], pairs: Any, turned: NDArray[Any], margins: Array, rng: np.random.Generator
) -> list[int]:
    config = WAYS[way]
    if config is None or (way == "doubt alone" and not asked):
        return [int(at) for at in rng.choice(left, STEP, replace=False)]
    if way == "doubt alone":
        return [int(at) for at in left[np.argsort(np.abs(margins[left]), kind="stable")[:STEP]]]

    def answers(at: int) -> tuple[str, str]:
        return (pairs[at][2], pairs[at][1]) if turned[at] else (pairs[at][1], pairs[at][2])

    candidates = [QueueCandidate((Message(role="user", content=pairs[at][0]),), answers(at), kind="compare") for at in left]
    odds = [float(1 / (1 + np.exp(-side * margins[at] / 2))) for at in left for side in ((-1, 1) if turned[at] else (1, -1))]
    signals = Signals(strata, values=(lambda samples: odds) if asked else None)
    by_texts = {(one.question, one.answers): at for one, at in zip(candidates, left, strict=True)}
    taken = choose_batch(candidates, signals, {"routine": STEP}, config, SeenQuestions(), [answers(at) for at in asked])
    return [int(by_texts[(item.content.prompt[0].content, item.content.answers)]) for item in taken]


def harm(seed: int, size: int) -> dict[str, Any]:
    """Dangerous answers among the first that are shown."""
    rng, fog = random.Random(seed), random.Random(seed)
    given, bad = list[QueueCandidate](), dict[tuple[str, str], bool]()
    mix = build_mix(MixConfig())
    while len(given) < size:
        case = draw_case(rng, rng.choice(TONGUES))
        quality = draw_quality(rng, case, CLINIC)
        question, answer = ask(rng, case), answer_to(rng, case, quality)
        danger = quality.risky or (case.flag is not None and quality.emergency == "none")
        reasons = {}
        if rng.random() < (0.3 if danger else 0.1):  # few users say anything, and some complain about good answers
            reasons["thumbs_down"] = 1.0 if rng.random() < (0.7 if danger else 0.3) else 0.0
        gap = disagreement(mix.score([Sample(id="x", question=question, answer=answer)])[0])
        if gap is not None:
            reasons["disagreement"] = gap
        if (question, answer) not in bad:
            bad[(question, answer)] = danger
            given.append(QueueCandidate((Message(role="user", content=question),), (answer,), reasons=reasons))
    found: dict[str, Any] = {"share": sum(bad.values()) / size}
    for way, config in HARM.items():
        found[way] = []
        # The worst case: a model whose doubt says nothing, so its lane finds harm by chance only.
        signals = Signals(strata, values=(lambda samples: [fog.random() for _ in samples]) if "model" in way else None)
        for n in SHOWN:
            room = {str(name): round(n * share) for name, share in config.quotas.items()}
            taken = choose_batch(given, signals, room, config, SeenQuestions())
            found[way].append(sum(bad[(item.content.prompt[0].content, item.content.answers[0])] for item in taken))
    found["random"] = [sum(bad[key] for key in rng.sample(list(bad), n)) for n in SHOWN]
    return found


def interval(values: Any, of: Callable[[Any], float] = lambda some: float(np.mean(some))) -> list[float | None]:
    """The value and its 95 % interval over seeds; where it cannot be had (random choice is never caught up with) it is None."""
    values, rng = np.asarray(values), np.random.default_rng(0)
    drawn = [of(values[rng.integers(0, len(values), len(values))]) for _ in range(1000)]
    low, high = np.percentile(drawn, [2.5, 97.5], method="nearest")
    return [round(float(one), 4) if np.isfinite(one) else None for one in (of(values), low, high)]


def ratio(curves: Array) -> float:
    """Labels for what random choice reaches at two thirds of its labels, as a part of those: (seeds, 2, turns), random first."""
    chance, own = curves.mean(0)
    chance, own = (np.maximum.accumulate(_smooth(curve)) for curve in (chance, own))
    at = 2 * len(chance) // 3 - 1
    if own[-1] < chance[at]:
        return float("inf")
    turn = int(np.argmax(own >= chance[at]))
    before = own[turn - 1] if turn else 0.5
    part = (chance[at] - before) / max(1e-9, own[turn] - before)
    reached = int(np.argmax(chance >= chance[at]))  # where random choice itself was there first
    return float((turn + part) / (reached + 1))


def _smooth(curve: Array) -> Array:
    return np.array([curve[max(0, at - 1) : at + 2].mean() for at in range(len(curve))])


def report_labels(given: argparse.Namespace, seeds: range) -> dict[str, Any]:
    pairs = pairs_of(given.pairs) if given.pairs else made_pairs(6000, given.made)
    reads = differences(pairs, crossed=not given.pairs)
    runs = {}
    for way in given.ways:
        print(f"{way} ...", file=sys.stderr)
        runs[way] = [learning(seed, way, pairs, reads, given) for seed in seeds]
    turns = min(len(curve) for some in runs.values() for curve in some)  # pools of small files differ by some pairs
    curves = {way: np.array([curve[:turns] for curve in some]) for way, some in runs.items()}
    chance = curves["random"]
    at = [n for n in (100, 200, 300, 400, 500, 600) if n <= turns * STEP]
    found: dict[str, Any] = {"pairs": len(pairs), "labels_at": at, "labels_of_the_ratio": 2 * turns // 3 * STEP}
    for way, own in curves.items():
        found[way] = {
            "accuracy": [interval(own[:, n // STEP - 1]) for n in at],
            "ahead_of_random": interval((own - chance).mean(1)),
            "labels_needed": interval(np.stack([chance, own], 1), ratio),
        }
    return found


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--seeds", type=int, default=10)
    args.add_argument("--first", type=int, default=0, help="the first seed")
    args.add_argument("--pairs", type=Path, help="a file of pairs (default: made ones)")
    args.add_argument("--made", type=int, default=77, help="seed of the generator of made pairs")
    args.add_argument("--pool", type=int, default=2000, help="pairs that wait, at most")
    args.add_argument("--labels", type=int, default=600, help="labels to give, at most")
    args.add_argument("--noise", type=float, default=0.1, help="share of wrong labels added")
    args.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    args.add_argument("--skip-harm", action="store_true", help="only the labels")
    args.add_argument("--out", type=Path, help="write the JSON here too")
    given = args.parse_args()
    for module, name in (
        (lanes, "shingles"),
        (active_learning, "shingles"),
        (active_learning, "word_set"),
    ):  # the same texts wait turn after turn
        setattr(module, name, cache(getattr(module, name)))
    began, seeds = time.process_time(), range(given.first, given.first + given.seeds)
    if "random" not in given.ways:
        given.ways = ["random", *given.ways]
    found: dict[str, Any] = {"seeds": list(seeds), "labels": report_labels(given, seeds)}
    if not given.skip_harm:
        runs = [harm(seed, 2000) for seed in seeds]
        found["harm"] = {
            "share": interval([one["share"] for one in runs]), "shown": SHOWN,
            **{way: [interval([one[way][at] for one in runs]) for at in range(len(SHOWN))] for way in ("random", *HARM)},
        }  # fmt: skip
    found["processor_s"] = round(time.process_time() - began)
    text = json.dumps(found, indent=1)
    text = re.sub(r"\[\s+([^][{}]+?)\s+\]", lambda few: "[" + re.sub(r"\s+", " ", few[1]) + "]", text)  # short lists on one line
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
