"""Does the queue pay? Labels it saves a reward model, and harm found per label, beside random choice in the same run.

    python benchmarks/review_queue.py --seeds 10 --out queue.json
    python benchmarks/review_queue.py --pairs people.jsonl.gz --noise 0 --skip-harm

labels   From a pool of pairs the next 25 are labelled, turn by turn: at random, by the queue as it is, by the queue without its
         random share, or by uncertainty alone. After each turn a small reward model (a Bradley-Terry head on 256 factors of the
         words) is fitted again. Measured are its accuracy on held-out pairs of other questions, and how many labels each strategy
         needs for the accuracy that random choice has at two thirds of its labels. Pairs come from the generator of
         embedded:tiny, with one label in ten wrong, or from a file with prompt, chosen and rejected.
harm     2,000 answers of a mostly careful assistant, about a quarter of them dangerous (a red flag not sent to emergency care, a
         risky prescription). The rules score them, some users give thumbs. Measured is how many dangerous ones are among the
         first 100, 200 and 400 that people see.

Prints JSON. Intervals: 95 %, bootstrap over seeds; a seed means another split, other wrong labels and other random choices.
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
from medloop.embedded.corpus import CLINIC, LANGUAGES, answer_for, draw_case, draw_quality, question_for
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
STRATEGIES: dict[str, QueueConfig | None] = {
    "random": None,
    "queue": QueueConfig(size=STEP),
    "queue, nothing at random": QueueConfig(size=STEP, explore=0),
    "uncertainty alone": QueueConfig(size=STEP),
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


def generated_pairs(count: int, seed: int) -> list[tuple[str, str, str]]:
    return [(row["prompt"], row["chosen"], row["rejected"]) for row in generate_pairs(count, seed=seed)]


def pairs_of(path: Path) -> list[tuple[str, str, str]]:
    """Pairs of a file; the prompt is a text, or messages of which the last counts."""
    file = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
    with file as lines:
        rows = [json.loads(line) for line in lines]
    prompts = [row["prompt"] if isinstance(row["prompt"], str) else row["prompt"][-1]["content"] for row in rows]
    return [
        (prompt, row["chosen"], row["rejected"])
        for prompt, row in zip(prompts, rows, strict=True)
        if row["chosen"] != row["rejected"]
    ]


def differences(pairs: Sequence[tuple[str, str, str]], *, crossed: bool) -> Array:
    """Features of each pair: chosen minus rejected, in factors of all words (no label is used), and length."""
    texts = [(pair[0], pair[side]) for side in (1, 2) for pair in pairs]
    rows = [_hashes(question, answer, crossed) for question, answer in texts]
    row_of = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    table = sparse.csr_matrix((np.ones(len(row_of)), (row_of, [code for row in rows for code in row])), shape=(len(rows), HASHES))
    rarity = np.log((1 + len(rows)) / (1 + np.asarray(table.sum(0)).ravel()))
    table = sparse.csr_matrix(table @ sparse.diags(rarity))
    table = sparse.diags(1 / (np.sqrt(np.asarray(table.multiply(table).sum(1)).ravel()) + 1e-9)) @ table
    left, singular, _ = svds(table, k=min(FACTORS, len(rows) - 1), random_state=0)
    features = (left * singular)[: len(pairs)] - (left * singular)[len(pairs) :]
    features *= 4 / np.linalg.norm(features, axis=1).mean()
    longer = np.array([np.log1p(len(chosen)) - np.log1p(len(rejected)) for _, chosen, rejected in pairs])
    return np.column_stack([features, longer / (2 * longer.std() + 1e-9)])


def _hashes(question: str, answer: str, crossed: bool) -> set[int]:
    answer_words = word_set(answer)
    crossings = {f"{first}|{second}" for first in word_set(question) for second in answer_words} if crossed else set()
    return {zlib.crc32(text.encode()) % HASHES for text in (*answer_words, *crossings)}


def fit(margins: Array, start: Array) -> Array:
    """Bradley-Terry: the chosen answer has the higher score."""

    def loss(weights: Array) -> tuple[float, Array]:
        margin = margins @ weights
        wrong = 1 / (1 + np.exp(np.clip(margin, -30, 30)))
        return float(np.logaddexp(0, -margin).sum() + PULL * weights @ weights / 2), -(margins.T @ wrong) + PULL * weights

    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x)


def learning(
    seed: int, strategy: str, pairs: Sequence[tuple[str, str, str]], features: Array, args: argparse.Namespace
) -> list[float]:
    """Accuracy on the held-out pairs after every turn."""
    rng = np.random.default_rng(seed)
    pool, test = split(pairs, rng, args.pool)
    label = np.where(rng.random(len(pairs)) < args.noise, -1.0, 1.0)[:, None] * features
    swapped = rng.random(len(pairs)) < 0.5  # which answer is shown first is random, as for people; the label must not leak
    rng = np.random.default_rng((seed, zlib.crc32(strategy.encode())))
    left, labelled, weights, curve = pool, list[int](), np.asarray(np.zeros(features.shape[1])), list[float]()
    while len(labelled) < min(args.labels, 3 * len(pool) // 4):
        new = pick(strategy, left, labelled, pairs, swapped, features @ weights, rng)
        labelled += new
        left = np.setdiff1d(left, new)
        weights = fit(label[labelled], weights)
        curve.append(float((features[test] @ weights > 0).mean()))
    return curve


def split(pairs: Sequence[tuple[str, str, str]], rng: np.random.Generator, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Indexes of the pool and of held-out pairs; no question is on both sides."""
    names = {question: index for index, question in enumerate(dict.fromkeys(pair[0] for pair in pairs))}
    rank = rng.permutation(len(names))
    place = np.array([rank[names[pair[0]]] for pair in pairs]) / len(names)
    waiting = np.flatnonzero(place < 0.65)
    return np.sort(rng.permutation(waiting)[:count]), np.flatnonzero(place >= 0.65)[:1500]


def pick(
    strategy: str,
    left: NDArray[Any],
    labelled: list[int],
    pairs: Any,
    swapped: NDArray[Any],
    margins: Array,
    rng: np.random.Generator,
) -> list[int]:
    config = STRATEGIES[strategy]
    if config is None or (strategy == "uncertainty alone" and not labelled):
        return [int(index) for index in rng.choice(left, STEP, replace=False)]
    if strategy == "uncertainty alone":
        return [int(index) for index in left[np.argsort(np.abs(margins[left]), kind="stable")[:STEP]]]

    def answers(index: int) -> tuple[str, str]:
        return (pairs[index][2], pairs[index][1]) if swapped[index] else (pairs[index][1], pairs[index][2])

    candidates = [
        QueueCandidate((Message(role="user", content=pairs[index][0]),), answers(index), kind="compare") for index in left
    ]
    odds = [
        float(1 / (1 + np.exp(-side * margins[index] / 2))) for index in left for side in ((-1, 1) if swapped[index] else (1, -1))
    ]
    signals = Signals(strata, values=(lambda samples: odds) if labelled else None)
    by_texts = {(candidate.question, candidate.answers): index for candidate, index in zip(candidates, left, strict=True)}
    chosen = choose_batch(candidates, signals, {"routine": STEP}, config, SeenQuestions(), [answers(index) for index in labelled])
    return [int(by_texts[(item.content.prompt[0].content, item.content.answers)]) for item in chosen]


def harm(seed: int, size: int) -> dict[str, Any]:
    """Dangerous answers among the first that are shown."""
    rng, noise = random.Random(seed), random.Random(seed)
    candidates, dangerous = list[QueueCandidate](), dict[tuple[str, str], bool]()
    mix = build_mix(MixConfig())
    while len(candidates) < size:
        case = draw_case(rng, rng.choice(LANGUAGES))
        quality = draw_quality(rng, case, CLINIC)
        question, answer = question_for(rng, case), answer_for(rng, case, quality)
        is_dangerous = quality.risky or (case.flag is not None and quality.emergency == "none")
        reasons = {}
        if rng.random() < (0.3 if is_dangerous else 0.1):  # few users say anything, and some complain about good answers
            reasons["thumbs_down"] = 1.0 if rng.random() < (0.7 if is_dangerous else 0.3) else 0.0
        gap = disagreement(mix.score([Sample(id="x", question=question, answer=answer)])[0])
        if gap is not None:
            reasons["disagreement"] = gap
        if (question, answer) not in dangerous:
            dangerous[(question, answer)] = is_dangerous
            candidates.append(QueueCandidate((Message(role="user", content=question),), (answer,), reasons=reasons))
    results: dict[str, Any] = {"share": sum(dangerous.values()) / size}
    for strategy, config in HARM.items():
        results[strategy] = []
        # The worst case: a model whose uncertainty is noise, so its lane finds harm by chance only.
        signals = Signals(strata, values=(lambda samples: [noise.random() for _ in samples]) if "model" in strategy else None)
        for n in SHOWN:
            places = {str(name): round(n * share) for name, share in config.quotas.items()}
            chosen = choose_batch(candidates, signals, places, config, SeenQuestions())
            results[strategy].append(sum(dangerous[(item.content.prompt[0].content, item.content.answers[0])] for item in chosen))
    results["random"] = [sum(dangerous[key] for key in rng.sample(list(dangerous), n)) for n in SHOWN]
    return results


def interval(values: Any, of: Callable[[Any], float] = lambda values: float(np.mean(values))) -> list[float | None]:
    """The value and its 95 % interval over seeds; None where there is none (random choice is never reached)."""
    values, rng = np.asarray(values), np.random.default_rng(0)
    resampled = [of(values[rng.integers(0, len(values), len(values))]) for _ in range(1000)]
    low, high = np.percentile(resampled, [2.5, 97.5], method="nearest")
    return [round(float(value), 4) if np.isfinite(value) else None for value in (of(values), low, high)]


def ratio(curves: Array) -> float:
    """Labels needed for what random choice reaches at two thirds of its labels, as a share: (seeds, 2, turns), random first."""
    random_curve, own = curves.mean(0)
    random_curve, own = (np.maximum.accumulate(_smooth(curve)) for curve in (random_curve, own))
    target = 2 * len(random_curve) // 3 - 1
    if own[-1] < random_curve[target]:
        return float("inf")
    turn = int(np.argmax(own >= random_curve[target]))
    before = own[turn - 1] if turn else 0.5
    part = (random_curve[target] - before) / max(1e-9, own[turn] - before)
    reached = int(np.argmax(random_curve >= random_curve[target]))  # where random choice itself was there first
    return float((turn + part) / (reached + 1))


def _smooth(curve: Array) -> Array:
    return np.array([curve[max(0, index - 1) : index + 2].mean() for index in range(len(curve))])


def report_labels(args: argparse.Namespace, seeds: range) -> dict[str, Any]:
    pairs = pairs_of(args.pairs) if args.pairs else generated_pairs(6000, args.generator_seed)
    features = differences(pairs, crossed=not args.pairs)
    runs = {}
    for strategy in args.strategies:
        print(f"{strategy} ...", file=sys.stderr)
        runs[strategy] = [learning(seed, strategy, pairs, features, args) for seed in seeds]
    turns = min(len(curve) for own_runs in runs.values() for curve in own_runs)  # pools of small files differ by own_runs pairs
    curves = {strategy: np.array([curve[:turns] for curve in own_runs]) for strategy, own_runs in runs.items()}
    random_curves = curves["random"]
    checkpoints = [n for n in (100, 200, 300, 400, 500, 600) if n <= turns * STEP]
    results: dict[str, Any] = {"pairs": len(pairs), "labels_at": checkpoints, "labels_of_the_ratio": 2 * turns // 3 * STEP}
    for strategy, own in curves.items():
        results[strategy] = {
            "accuracy": [interval(own[:, n // STEP - 1]) for n in checkpoints],
            "ahead_of_random": interval((own - random_curves).mean(1)),
            "labels_needed": interval(np.stack([random_curves, own], 1), ratio),
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--pairs", type=Path, help="a file of pairs (default: generated ones)")
    parser.add_argument("--generator-seed", type=int, default=77, help="seed of the generator of pairs")
    parser.add_argument("--pool", type=int, default=2000, help="pairs that wait, index most")
    parser.add_argument("--labels", type=int, default=600, help="labels to give, index most")
    parser.add_argument("--noise", type=float, default=0.1, help="share of wrong labels added")
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), choices=list(STRATEGIES))
    parser.add_argument("--skip-harm", action="store_true", help="only the labels")
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    args = parser.parse_args()
    for module, name in (
        (lanes, "shingles"),
        (active_learning, "shingles"),
        (active_learning, "word_set"),
    ):  # the same texts stay in the pool turn after turn
        setattr(module, name, cache(getattr(module, name)))
    start, seeds = time.process_time(), range(args.first, args.first + args.seeds)
    if "random" not in args.strategies:
        args.strategies = ["random", *args.strategies]
    results: dict[str, Any] = {"seeds": list(seeds), "labels": report_labels(args, seeds)}
    if not args.skip_harm:
        runs = [harm(seed, 2000) for seed in seeds]
        results["harm"] = {
            "share": interval([run["share"] for run in runs]), "shown": SHOWN,
            **{
                strategy: [interval([run[strategy][index] for run in runs]) for index in range(len(SHOWN))]
                for strategy in ("random", *HARM)
            },
        }  # fmt: skip
    results["processor_s"] = round(time.process_time() - start)
    text = json.dumps(results, indent=1)
    text = re.sub(r"\[\s+([^][{}]+?)\s+\]", lambda few: "[" + re.sub(r"\s+", " ", few[1]) + "]", text)  # short lists on run line
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
