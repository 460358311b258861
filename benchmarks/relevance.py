"""Can rel and faith tell the right answer from another one, and how fast are they on one core?

    python benchmarks/relevance.py --out relevance.json
    python benchmarks/relevance.py --english pubmedqa.jsonl.gz --chinese toyhom.jsonl.gz --rows 300 --out relevance.json

A line of a file has `question`, `answer` (or `long_answer`) and, for faith, `contexts` (a list) or `context`. Without files the
embedded corpus is used; it has no context, so one is made of the answer's sentences between those of two others.

    AUC      how often the right answer scores above a wrong one (0.5 is chance), with a 95 % bootstrap interval over questions.
             "other": the answer to a random other question. "like": the answer to the question most like this one.
    speed    rel, faith and conc together, processor time of one thread. "naive" encodes every text in a call of its own.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from medloop.contracts import Component, Sample, Score
from medloop.embedded.corpus import generate
from medloop.models.encode import load_encoder
from medloop.reward.relevance import RelevanceConfig, load_relevance, visible_text
from medloop.reward.word_overlap import sentences, word_pieces
from medloop.settings import Settings

CANDIDATES = 4  # answers to a question in a round of rejection sampling
KINDS = {
    "embedded:minilm, faith by sentences": RelevanceConfig(),
    "embedded:minilm, faith by bertscore": RelevanceConfig(faith="bertscore"),
    "heuristic": RelevanceConfig(scorer="heuristic"),
    "embedded:minilm, told that it reads Chinese": RelevanceConfig(reads_chinese=True),
}
ENGLISH, CHINESE = tuple(KINDS)[:3], tuple(KINDS)[2:]


def read(path: Path, rows: int) -> list[Sample]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        samples = [_sample(str(number), json.loads(line)) for number, line in enumerate(file)]
    random.Random(0).shuffle(samples)
    return samples[:rows]


def _sample(id: str, row: dict[str, Any]) -> Sample:
    context = row.get("context") or " ".join(row.get("contexts") or ())
    return Sample(id=id, question=row["question"], answer=row.get("answer") or row["long_answer"], context=context or None)


def embedded(language: str, rows: int) -> list[Sample]:
    conversations = [{m["role"]: m["content"] for m in row["messages"]} for row in generate(rows * 4, seed=9)]
    pairs = [
        (conversation["user"], conversation["assistant"])
        for conversation in conversations
        if conversation["user"].isascii() == (language == "english")
    ][:rows]
    bare = [visible_text(Sample(id="a", question=q, answer=a)) for q, a in pairs]
    around = [" ".join((bare[index - 5], bare[index], bare[index - 7])) for index in range(len(bare))]
    return [Sample(id=str(index), question=q, answer=bare[index], context=around[index]) for index, (q, _) in enumerate(pairs)]


def most_alike(samples: Sequence[Sample]) -> list[int]:
    """For each question the one that shares most pieces of words with it, for its size."""
    bags = [word_pieces(sample.question) for sample in samples]
    nearest = []
    for index, bag in enumerate(bags):
        shares = [len(bag & other) / (len(bag | other) or 1) if number != index else -1.0 for number, other in enumerate(bags)]
        nearest.append(int(np.argmax(shares)))
    return nearest


def auc(right: np.ndarray, wrong: np.ndarray) -> float:
    """Share of pairs in which the right one is above; a tie counts half."""
    ordered = np.sort(wrong)
    below, upto = np.searchsorted(ordered, right, "left"), np.searchsorted(ordered, right, "right")
    return float((below + (upto - below) / 2).mean() / len(wrong))


def with_interval(right: np.ndarray, wrong: np.ndarray) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    draws = [auc(right[chosen], wrong[chosen]) for chosen in rng.integers(0, len(right), (1000, len(right)))]
    low, high = np.quantile(draws, [0.025, 0.975])
    means = {"mean_right": round(float(right.mean()), 3), "mean_wrong": round(float(wrong.mean()), 3)}
    return {"auc": round(auc(right, wrong), 3), "interval": [round(float(low), 3), round(float(high), 3)], **means}


def values(part: Component, samples: Sequence[Sample]) -> np.ndarray:
    """One number per sample; NaN where there is none (a question without words, to the heuristic)."""
    return np.array([score.value if isinstance(score, Score) and score.applies else np.nan for score in part.score(samples)])


def separate(samples: list[Sample], kinds: Sequence[str], settings: Settings) -> dict[str, Any]:
    alike = most_alike(samples)
    answers = {
        "right": [sample.answer for sample in samples],
        "other": [samples[index - 1].answer for index in range(len(samples))],
        "like": [samples[index].answer for index in alike],
    }
    variants = {
        kind: [s.model_copy(update={"answer": a}) for s, a in zip(samples, replies, strict=True)]
        for kind, replies in answers.items()
    }
    report: dict[str, Any] = {"questions": len(samples)}
    for kind in kinds:
        parts = load_relevance(KINDS[kind], settings)
        for name in ("rel", "faith") if samples[0].context else ("rel",):
            if name == "rel" and "bertscore" in kind:
                continue  # the same as with sentences
            scored = {which: values(parts[name], these) for which, these in variants.items()}
            whole = ~np.isnan(sum(scored.values()))
            scored = {which: column[whole] for which, column in scored.items()}
            report[f"{name}, {kind}"] = {
                "version": parts[name].version,
                "missing": int((~whole).sum()),
                **{which: with_interval(scored["right"], scored[which]) for which in ("other", "like")},
            }
    return report


def seconds(work: Any) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def speed(samples: list[Sample], settings: Settings) -> dict[str, Any]:
    """Answers per second, each with its own context, and with CANDIDATES answers to a question; the naive loop beside them."""
    parts = load_relevance(RelevanceConfig(), settings)
    parts["rel"].score(samples[:2])  # the model is loaded
    groups = [
        samples[index - index % CANDIDATES].model_copy(update={"answer": sample.answer}) for index, sample in enumerate(samples)
    ]
    encoder = load_encoder("embedded:minilm", settings)

    def naive(these: Sequence[Sample]) -> None:
        for sample in these:
            for text in (
                sample.question,
                visible_text(sample),
                *sentences(visible_text(sample)),
                *sentences(sample.context or ""),
            ):
                encoder.encode([text])

    def batched(these: Sequence[Sample]) -> None:
        for part in parts.values():
            part.score(these)

    report: dict[str, Any] = {
        "answers": len(samples),
        "median_context_characters": int(np.median([len(s.context or "") for s in samples])),
    }
    for name, these in (("alone", samples), (f"in groups of {CANDIDATES}", groups)):
        quick, slow = seconds(lambda these=these: batched(these)), seconds(lambda these=these: naive(these))
        report[name] = {
            "answers_per_second": round(len(these) / quick, 1),
            "naive_answers_per_second": round(len(these) / slow, 1),
            "times_faster": round(slow / quick, 2),
        }
    words = load_relevance(RelevanceConfig(scorer="heuristic"), settings)
    report["heuristic_answers_per_second"] = round(
        len(samples) / seconds(lambda: [part.score(samples) for part in words.values()])
    )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--english", type=Path, metavar="FILE", help="JSON lines, plain or gzip (default: embedded corpus)")
    parser.add_argument("--chinese", type=Path, metavar="FILE", help="JSON lines, plain or gzip (default: embedded corpus)")
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("relevance.json"))
    args = parser.parse_args()
    settings = Settings(home=Path.cwd(), threads=1)
    english = read(args.english, args.rows) if args.english else embedded("english", args.rows)
    chinese = read(args.chinese, args.rows) if args.chinese else embedded("chinese", args.rows)
    result = {
        "machine": platform.platform(),
        "english": {"data": args.english.name if args.english else "embedded corpus", **separate(english, ENGLISH, settings)},
        "chinese": {
            "data": args.chinese.name if args.chinese else "embedded corpus",
            **separate(chinese, CHINESE, settings),
        },
        "speed": speed(english[: min(100, len(english))], settings),
    }
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    args.out.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
