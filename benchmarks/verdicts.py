"""Draws verdicts on real text for a reader, and counts what readers said: are single verdicts right where a part asserts one?

    python benchmarks/verdicts.py --data DIR --fires fires.jsonl                               # score every answer of the sets
    python benchmarks/verdicts.py --fires fires.jsonl --half held --seed 7 --out sample.jsonl  # 100 verdicts for a blind reader

DIR has public sets as `NAME.jsonl.gz`: consultations, health chat, an encyclopaedia, general chat. A verdict is a penalty of 0.25
or more that is not `unsure` (`medloop.contracts.score.asserts_fault`). `fires.jsonl` also has the unsure ones, marked.

    half     texts are split by the CRC-32 of their set and id: `open` may be read to mend the rules, `held` only to measure
    draw     even by part (WANTED), within a part by the square root of each set's number; verdicts that were read before
             (benchmarks/verdicts_read.json) are never drawn
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from acts import SETS, Answer, Row, read

from medloop.contracts.score import asserts_fault
from medloop.reward.detect.urgency import urgency
from medloop.reward.rules import RULES

READ = Path(__file__).parent / "verdicts_read.json"
PARTS = ("risk", "false_reassurance", "undertriage", "overtriage", "safety_net", "off_topic", "repetition")
FIRES = 0.25  # from here on a penalty counts as a fault, as in the trust meter
WANTED = {"risk": 45, "false_reassurance": 15, "undertriage": 25, "overtriage": 5, "off_topic": 10, "repetition": 30}
COUNT = 100  # verdicts of a sample; what some parts have too few of is not replaced


def turns(row: Row) -> Iterator[Answer]:
    """A dialogue: all that the patient has said, and each answer."""
    messages = row.get("messages") or row["prompt"]
    said: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] == "user":
            said.append(message["content"])
        elif message["role"] == "assistant" and said:
            yield f"{row['id']}#{index}", "\n".join(said), message["content"]
    if isinstance(row.get("ideal_completion"), str):
        yield f"{row['id']}#ideal", "\n".join(said), row["ideal_completion"]


def last_turn(*names: str) -> Callable[[Row], Iterator[Answer]]:
    def rows(row: Row) -> Iterator[Answer]:
        for name in names:
            yield f"{row['id']}#{name}", row["prompt"][-1]["content"], row[name]

    return rows


def ranked(row: Row) -> Iterator[Answer]:
    for index, answer in enumerate(row["responses_best_first"]):
        yield f"{row['id']}#{index}", row["prompt"][-1]["content"], answer


ALL_SETS: dict[str, Callable[[Row], Iterator[Answer]]] = {
    **SETS,
    "zh_cmtmedqa_multiturn": turns, "pref_zh_disc_medllm_gpt4_scores": turns, "healthbench_examples": turns,
    "healthbench_meta_eval97": lambda row: iter(
        [(str(row["id"]), "\n".join(m["content"] for m in row["prompt"] if m["role"] == "user"), row["completion"])]
    ),
    "en_medquad_qa": lambda row: iter([(row["id"], row["question"], row["answer"])][: zlib.crc32(row["id"].encode()) % 4 == 2]),
    "pref_zh_oasst_ranked": ranked,
    "pref_en_hh_harmless": last_turn("chosen", "rejected"),
    "pref_zh_en_dpo_demo": last_turn("chosen", "rejected"),
}  # fmt: skip


def half_of(name: str, id: str) -> str:
    """By the text, not by the answer: all answers of one row are in one half."""
    return "held" if zlib.crc32(f"verdicts {name} {re.sub('#.*', '', id)}".encode()) & 1 else "open"


def scan(folder: Path) -> Iterator[Row]:
    """Every verdict on the sets; what was read before is left out."""
    known = json.loads(READ.read_text(encoding="utf-8"))
    seen = {(part, name, id) for sample in known.values() for part, sets in sample.items() for name in sets for id in sets[name]}
    for name, answers in ALL_SETS.items():
        for row in read(folder, name) or ():
            for id, question, answer in answers(row):
                if question.strip() and answer.strip():
                    yield from _verdicts(name, id, question, answer, seen)


def _verdicts(name: str, id: str, question: str, answer: str, seen: set[tuple[str, str, str]]) -> Iterator[Row]:
    for part in PARTS:
        score = RULES[part].score(question, answer)
        if not score.applies or score.value < FIRES or (part, name, id) in seen:
            continue
        found = urgency(question)
        yield {
            "set": name, "id": id, "half": half_of(name, id), "part": part, "value": score.value, "reason": score.reason,
            "unsure": not asserts_fault(score, FIRES), "urgency": found.level,
            "evidence": [f"{evidence.source} {evidence.id}" for evidence in found.evidence],
            "words": [(answer if span.where == "answer" else question)[span.start : span.end] for span in score.spans][:4],
            "question": question, "answer": answer,
        }  # fmt: skip


def draw(rows: list[Row], wanted: dict[str, int], seed: str) -> list[Row]:
    chooser, sample = random.Random(seed), []
    for part, count in wanted.items():
        by_set: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            if row["part"] == part:
                by_set[row["set"]].append(row)
        total = sum(len(group) ** 0.5 for group in by_set.values())
        chosen, rest = [], []
        for name in sorted(by_set):
            chooser.shuffle(by_set[name])
            size = max(1, round(count * len(by_set[name]) ** 0.5 / total))
            chosen += by_set[name][:size]
            rest += by_set[name][size:]
        chooser.shuffle(rest)
        sample += (chosen + rest)[:count]
    return sample[:COUNT]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public sets: score them and write --fires")
    parser.add_argument("--fires", type=Path, required=True)
    parser.add_argument("--half", choices=("open", "held"), default="open")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--part", help="only this part, --count verdicts of it")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--unsure", action="store_true", help="draw what is unsure instead of verdicts")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.data:
        with args.fires.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in scan(args.data))
    rows = [json.loads(line) for line in args.fires.read_text(encoding="utf-8").splitlines()]
    counts = Counter((row["part"], "unsure" if row["unsure"] else "verdict", row["half"]) for row in rows)
    for key, number in sorted(counts.items()):
        print(*key, number, file=sys.stderr)
    if args.out:
        wanted = {args.part: args.count} if args.part else WANTED
        sample = draw([row for row in rows if row["half"] == args.half and row["unsure"] == args.unsure], wanted, args.seed)
        args.out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in sample), encoding="utf-8")


if __name__ == "__main__":
    main()
