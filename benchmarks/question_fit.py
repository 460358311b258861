"""Does `fit` tell the right answer to a question from a wrong one? On questions and answers by others, zh + en.

    python benchmarks/question_fit.py --data DIR --out question_fit.json

Wrong answers are answers of the same set with about the same length (shuffled), sentences of several answers (mixed), and words
of a trigram chain over all answers of the set (chained). For each set and kind: the share of pairs in which the right answer has
the higher fit, a tie as half; the share of right and of wrong answers below `RELATED`, where the audit calls an answer off topic;
the share of pairs in which the whole reward of the right answer is higher; and the share of right answers that `off_topic`
closes the gate for. Sets that are not there are left out and named;
without --data the questions are the bundled ones. The word vectors of `relatedness` learned from rows of four sets whose first
text has an even CRC-32; only the others are read here.
"""

from __future__ import annotations

import argparse
import json
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from incentives import Judge, Pair, Row, _disc, _users, bundled_plain, language_of, rows_of

from medloop.bootstrap import wilson
from medloop.contracts.score import SERIOUS
from medloop.lexicon import sentences
from medloop.lexicon.language import is_read
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.points import RELATED, read_points
from medloop.reward.rules import RULES

MOST = 300  # questions of a set
LEARNED = {  # sets of which `tools/train_relatedness.py` reads half, and the first text of a row there
    "en_medquad_qa": lambda row: row["question"], "zh_toyhom_dialogue": lambda row: row["title"],
    "zh_huatuo26m_test_qa": lambda row: row["question"], "zh_cmtmedqa_multiturn": lambda row: row["messages"][0]["content"],
}  # fmt: skip
NEAR = 25  # places in the order of length that a shuffled answer is away at most
SETS: dict[str, Callable[[list[Row]], Iterator[Pair]]] = {
    "judge_en_kqa_must_have": lambda rows: ((row["question"], row["physician_answer"]) for row in rows),
    "healthbench_examples": lambda rows: ((_users(row["prompt"]), row.get("ideal_completion") or "") for row in rows),
    "rank_en_liveqa_medquad_judged": lambda rows: (
        (row["question"], row["answer"]) for row in rows if row["judgment"] in ("excellent", "incomplete")
    ),
    "en_medquad_qa": lambda rows: ((row["question"], row["answer"]) for row in rows),
    "pref_zh_disc_medllm_gpt4_scores": lambda rows: _disc(rows, best=True),
    "zh_cmtmedqa_multiturn": lambda rows: ((row["messages"][0]["content"], row["messages"][1]["content"]) for row in rows),
    "zh_huatuo26m_test_qa": lambda rows: ((row["question"], row["answer"]) for row in rows),
    "zh_toyhom_dialogue": lambda rows: ((row["question"], row["answer"]) for row in rows),
}  # fmt: skip


def units_of(text: str) -> list[str]:
    return list(text) if language_of(text) == "zh" else [f"{word} " for word in text.split()]


def chained(texts: Sequence[str], rng: random.Random) -> Callable[[int], str]:
    """Writes texts of so many words in which every three neighbours are neighbours somewhere in these texts."""
    following: dict[tuple[str, str], list[str]] = defaultdict(list)
    for text in texts:
        units = units_of(text)
        for first, second, third in zip(units, units[1:], units[2:], strict=False):
            following[first, second].append(third)
    starts = list(following)

    def write(size: int) -> str:
        units = list(rng.choice(starts))
        while len(units) < size:
            units += [rng.choice(options)] if (options := following.get((units[-2], units[-1]))) else rng.choice(starts)
        return "".join(units)

    return write


def wrong_answers(pairs: Sequence[Pair], rng: random.Random) -> Iterator[dict[str, str]]:
    order = sorted(range(len(pairs)), key=lambda n: len(pairs[n][1]))
    place = {n: position for position, n in enumerate(order)}
    pool = [text[start:end] for _, text in pairs for start, end in sentences(text) if end - start > 8]
    write = chained([text for _, text in pairs], rng)
    for n, (question, right) in enumerate(pairs):
        near = [order[p] for p in range(max(0, place[n] - NEAR), min(len(order), place[n] + NEAR + 1))]
        others = [pairs[m][1] for m in near if pairs[m][0] != question and pairs[m][1] != right]
        count = min(8, max(2, len(sentences(right))))
        yield {
            "shuffled": rng.choice(others), "mixed": " ".join(rng.sample(pool, count)), "chained": write(len(units_of(right))),
        }  # fmt: skip


def measure_set(pairs: Sequence[Pair], judge: Judge, rng: random.Random) -> Row:
    wins: dict[str, float] = defaultdict(float)
    below: dict[str, int] = defaultdict(int)
    higher: dict[str, int] = defaultdict(int)
    closed = 0
    for (question, right), wrong in zip(pairs, wrong_answers(pairs, rng), strict=True):
        fits = {name: read_points(question, text).fit for name, text in {"right": right, **wrong}.items()}
        reward, *rewards = judge.rewards(question, [right, *wrong.values()])
        closed += RULES["off_topic"].score(question, right).value >= SERIOUS
        for name, value in fits.items():
            below[name] += value < RELATED
        for name, other in zip(wrong, rewards, strict=True):
            wins[name] += (fits["right"] > fits[name]) + 0.5 * (fits["right"] == fits[name])
            higher[name] += reward > other
    size = len(pairs)
    return {"questions": size, "right_below": _share(below["right"], size), "right_closed": _share(closed, size)} | {
        name: {
            "fit_right_higher": round(wins[name] / size, 3), "wrong_below": _share(below[name], size),
            "reward_right_higher": _share(higher[name], size),
        }
        for name in wins
    }  # fmt: skip


def _share(count: int, size: int) -> list[float]:
    return [round(value, 3) for value in (count / size, *wilson(count, size))]


def _unseen(name: str, rows: list[Row]) -> list[Row]:
    first = LEARNED.get(name)
    return [row for row in rows if zlib.crc32(first(row).encode()) % 2] if first else rows


def measure(folder: Path | None) -> Row:
    judge, result, absent = Judge(build_mix(MixConfig())), {}, []
    named = {name: list(convert(_unseen(name, rows_of(folder, name)))) for name, convert in SETS.items()} if folder else {}
    if not folder:
        by_language: dict[str, list[Pair]] = defaultdict(list)
        for question, answer in bundled_plain():
            by_language[language_of(question)].append((question, answer))
        named = {f"bundled_{language}": pairs for language, pairs in by_language.items()}
    for name, rows in named.items():
        rng = random.Random(1)
        pairs = [pair for pair in rows if all(text.strip() for text in pair) and is_read(pair[0])]
        if pairs:
            result[name] = measure_set(rng.sample(pairs, min(MOST, len(pairs))), judge, rng)
        else:
            absent.append(name)
    return {"below": RELATED, "absent": absent, "sets": result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the sets; without it the bundled questions are used")
    parser.add_argument("--out", type=Path, default=Path("question_fit.json"))
    options = parser.parse_args()
    result = measure(options.data)
    options.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, row in result["sets"].items():
        print(
            f"{name:32} {row['questions']:4} right below {row['right_below'][0]:.3f} closed {row['right_closed'][0]:.3f}", end=""
        )
        for kind in ("shuffled", "mixed", "chained"):
            values = row[kind]
            print(f"  {kind} {values['fit_right_higher']:.3f} below {values['wrong_below'][0]:.2f}", end="")
            print(f" reward {values['reward_right_higher'][0]:.3f}", end="")
        print()
    if result["absent"]:
        print(f"Not there: {', '.join(result['absent'])}")


if __name__ == "__main__":
    main()
