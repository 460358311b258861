"""What a scan for identifiers and the rules cost, in processor time or in instructions, which other programs do not change.

    python benchmarks/cost.py --out cost.json                            # processor time, best of the rounds
    python benchmarks/cost.py --instructions --only rating_en rules      # needs valgrind; about five minutes for each

    rating_en, rating_zh   question, answer and comment of a rating as in `ingest.py`, twelve together, as the service scans them
    dense_en, dense_zh     notes full of identifiers (`phi.py`), eight to a text, one by one; per kB
    rules                  all rules on an answer of 300 characters that has its own question (`rules.py`)

Processor time differs by a tenth and more between two runs where other programs work. Instructions are repeatable, but say
nothing of waiting for memory: count them to compare two forms of one step, and look at the time for the whole.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Last, not first: a neighbour of this file may have the name of a standard module.
sys.path[:] = [*(place for place in sys.path if Path(place).resolve() != HERE), str(HERE)]

import phi  # noqa: E402
import rules  # noqa: E402

from medloop.embedded.corpus import generate  # noqa: E402
from medloop.feedback.submit.doubt import doubts_about  # noqa: E402
from medloop.privacy.phi.scrub import assess  # noqa: E402

TOGETHER = 12  # ratings in one batch of the service
COMMENTS = {"en": "Good advice, but it does not ask about fever.", "zh": "剂量没有问题，但是没有提到过敏史。"}
WARM = 3  # passes over all texts before one is counted: expressions are compiled, words are known
Work = tuple[Callable[[], object], float, str]


def rating(language: str) -> Work:
    texts = ({message["role"]: message["content"] for message in row["messages"]} for row in generate(500, seed=11))
    records = [(text["user"][:150], text["assistant"][:200], COMMENTS[language]) for text in texts]
    records = [record for record in records if "".join(record).isascii() == (language == "en")]

    def scan() -> None:
        for first in range(0, len(records), TOGETHER):
            doubts_about(records[first : first + TOGETHER])

    return scan, len(records), "rating"


def dense(language: str) -> Work:
    notes = [row["text"] for row in phi.BuiltInTexts(7).rows(language, 240)]
    texts = ["\n".join(notes[first : first + 8]) for first in range(0, len(notes), 8)]
    return lambda: [assess(text) for text in texts], sum(len(text.encode()) for text in texts) / 1000, "kB"


def scored() -> Work:
    pairs = rules.corpus(160)
    return lambda: rules.score_all(pairs), len(pairs), "answer"


WORK: dict[str, Callable[[], Work]] = {
    "rating_en": lambda: rating("en"), "rating_zh": lambda: rating("zh"), "dense_en": lambda: dense("en"),
    "dense_zh": lambda: dense("zh"), "rules": scored,
}  # fmt: skip


def microseconds(name: str, rounds: int) -> float:
    work, size, _ = WORK[name]()
    work()
    times = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return round(1e6 * min(times) / size, 1)


def instructions(name: str) -> int:
    """Of one pass: those of a process with one pass more, less those of a process without it."""
    counts = []
    for passes in (WARM, WARM + 1):
        child = [sys.executable, "-P", __file__, "--passes", str(passes), "--only", name]
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *child]
        env = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        report = subprocess.run(command, capture_output=True, text=True, check=True, env=env).stderr
        collected = re.search(r"Collected : (\d+)", report)
        assert collected, "valgrind counted nothing"
        counts.append(int(collected[1]))
    return round((counts[1] - counts[0]) / WORK[name]()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--instructions", action="store_true", help="Count instructions with valgrind instead.")
    parser.add_argument("--passes", type=int, help=argparse.SUPPRESS)  # of a process whose instructions are counted
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.passes:
        work = WORK[given.only[0]]()[0]
        for _ in range(given.passes):
            work()
        return
    result = {}
    for name in given.only:
        value = instructions(name) if given.instructions else microseconds(name, given.rounds)
        result[name] = value
        print(f"{name}: {value:,} {'instructions' if given.instructions else 'µs'} for one {WORK[name]()[2]}")
    if given.out:
        given.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
