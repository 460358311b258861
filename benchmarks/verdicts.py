"""Draws verdicts on real text for a reader, and counts what readers said: are single verdicts right where a part asserts one?

    python benchmarks/verdicts.py --data DIR --fires fires.jsonl                               # score every answer of the sets
    python benchmarks/verdicts.py --fires fires.jsonl --half held --seed 7 --out sample.jsonl  # 100 verdicts for a blind reader
    python benchmarks/verdicts.py --data DIR --fresh --fires fires.jsonl --seed 7 --out sample.jsonl   # of texts kept apart
    python benchmarks/verdicts.py --data DIR --pairs question --fires pairs.jsonl              # answers to other questions alike
    python benchmarks/verdicts.py --answers answers.jsonl --fires fires.jsonl                  # what a model has answered

DIR has public sets as `NAME.jsonl.gz`: consultations, health chat, an encyclopaedia, general chat. A verdict is a penalty of 0.25
or more that is not `unsure` (`medloop.contracts.score.asserts_fault`). `fires.jsonl` also has the unsure ones, marked.

    half     texts are split by the CRC-32 of their set and id: `open` may be read to mend the rules, `held` only to measure
    answers  JSON lines of set, id (`ID#MODEL`: all answers to one question are in one half), question and answer
    pairs    question and answer of two rows, see `verdict_pairs.py`; only the parts that depend on both. Sets that are for
             measuring only are in the held half alone
    draw     even by part (WANTED), within a part by the square root of each set's number, one of a question and of an answer;
             verdicts that were read before (benchmarks/verdicts_read.json) are never drawn
    fresh    the sets FRESH of `verdict_sets.py`, held half: at most 25 verdicts of a part, one of a question, none of an answer
             that the other sets have; with `--rest FILE`, what is missing comes from the held half of that file of fires
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from acts import Row, read
from verdict_pairs import pairs
from verdict_sets import FRESH, MENDED, Reader

from medloop.contracts.score import asserts_fault
from medloop.reward.detect.urgency import urgency
from medloop.reward.rules import RULES

READ = Path(__file__).parent / "verdicts_read.json"
PARTS = ("risk", "false_reassurance", "undertriage", "overtriage", "safety_net", "off_topic", "repetition")
OF_BOTH = ("risk", "false_reassurance", "undertriage", "overtriage")  # parts that depend on question and answer
MEASURED = ("safety_", "judge_", "rate_", "rater_", "healthbench_", "triage_en_healthbench_")  # not to be read for mending
FIRES = 0.25  # from here on a penalty counts as a fault, as in the trust meter
WANTED = {"risk": 45, "false_reassurance": 15, "undertriage": 25, "overtriage": 5, "off_topic": 10, "repetition": 30}
MOST = 25  # of a part in a sample of fresh texts
COUNT = 100  # verdicts of a sample; what some parts have too few of is not replaced


def half_of(name: str, id: str) -> str:
    """By the text, not by the answer: all answers of one row are in one half."""
    return "held" if zlib.crc32(f"verdicts {name} {re.sub('[# ].*', '', id)}".encode()) & 1 else "open"


def scan(folder: Path, *, fresh: bool = False) -> Iterator[Row]:
    """Every verdict on the sets; what was read before is left out, and for `fresh` every answer that the other sets have."""
    known = json.loads(READ.read_text(encoding="utf-8"))
    seen = {(part, name, id) for sample in known.values() for part, sets in sample.items() for name in sets for id in sets[name]}
    used = {answer.strip() for *_, answer in _answers(folder, MENDED)} if fresh else set()
    scored = 0
    for name, id, question, answer in _answers(folder, FRESH if fresh else MENDED):
        if question.strip() and answer.strip() and answer.strip() not in used:
            scored += 1
            yield from _verdicts(name, id, question, answer, seen)
    print("answers", scored, file=sys.stderr)


def scan_pairs(folder: Path, by: str) -> Iterator[Row]:
    """Every verdict on answers to other questions; none of a question or an answer of which a verdict of that part was read."""
    known = json.loads(READ.read_text(encoding="utf-8"))
    seen = set[tuple[str, str, str]]()
    for sample in known.values():
        for part, sets in sample.items():
            for name, ids in sets.items():
                for question, *answer in (id.split(" ") for id in ids):
                    seen |= {(part, name, question), (part, *answer)} if answer else {(part, name, question)}
    scored = 0
    for text in pairs(folder, half_of, by):
        question, name, id = text.id.split(" ")
        if half_of(text.name, text.id) == "open" and (text.name.startswith(MEASURED) or name.startswith(MEASURED)):
            continue
        scored += 1
        parts = tuple(part for part in OF_BOTH if not {(part, text.name, question), (part, name, id)} & seen)
        yield from _verdicts(text.name, text.id, text.question, text.answer, set(), parts)
    print("pairs", scored, file=sys.stderr)


def scan_answers(path: Path) -> Iterator[Row]:
    """Every verdict on answers of a model."""
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        yield from _verdicts(row["set"], row["id"], row["question"], row["answer"], set())


def _answers(folder: Path, sets: dict[str, Reader]) -> Iterator[tuple[str, str, str, str]]:
    for name, answers in sets.items():
        for row in read(folder, name) or ():
            for id, question, answer in answers(row):
                yield name, id, str(question), str(answer)


def _verdicts(
    name: str, id: str, question: str, answer: str, seen: set[tuple[str, str, str]], parts: tuple[str, ...] = PARTS
) -> Iterator[Row]:
    for part in parts:
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
        for row in _once([row for row in rows if row["part"] == part], chooser):
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


def _once(rows: list[Row], chooser: random.Random) -> list[Row]:
    """In random order, one of each question and of each answer: an answer that is paired with twenty questions is one fault."""
    chooser.shuffle(rows)
    questions, answers, kept = set[str](), set[str](), []
    for row in rows:
        if row["question"] not in questions and row["answer"] not in answers:
            questions.add(row["question"])
            answers.add(row["answer"])
            kept.append(row)
    return kept


def draw_fresh(rows: list[Row], seed: str) -> list[Row]:
    """By turns over the parts, and within a part over its sets: at most MOST of a part, one of a question."""
    chooser, sample, asked = random.Random(seed), [], set[str]()
    queues: dict[str, list[list[Row]]] = {}
    for part in PARTS:
        by_set: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            if row["part"] == part:
                by_set[row["set"]].append(row)
        for group in by_set.values():
            chooser.shuffle(group)
        queues[part] = [by_set[name] for name in sorted(by_set)]
    for _ in range(MOST):
        for groups in queues.values():
            row = _next(groups, asked)
            if row is not None and len(sample) < COUNT:
                asked.add(row["question"])
                sample.append(row)
    return sorted(sample, key=lambda row: (PARTS.index(row["part"]), row["set"]))


def unread(path: Path) -> list[Row]:
    """The verdicts of a file of fires that are verdicts still, of the held half; of no text has a reader judged the same part."""
    known = json.loads(READ.read_text(encoding="utf-8"))
    seen = {
        (part, name, re.sub("#.*", "", id))
        for read in known.values() for part, sets in read.items() for name in sets for id in sets[name]
    }  # fmt: skip
    rows = []
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if (
            row["half"] != "held"
            or row["part"] == "safety_net"
            or (row["part"], row["set"], re.sub("#.*", "", row["id"])) in seen
        ):
            continue
        score = RULES[row["part"]].score(row["question"], row["answer"])
        if asserts_fault(score, FIRES):
            rows.append({**row, "value": score.value, "reason": score.reason, "unsure": False})
    return rows


def draw_rest(path: Path, sample: list[Row], seed: str) -> list[Row]:
    """What a sample lacks, of texts that were scanned before and that no reader has seen."""
    taken, asked, rest = Counter(row["part"] for row in sample), {row["question"] for row in sample}, []
    for row in draw_fresh(unread(path), seed):
        if row["question"] not in asked and taken[row["part"]] < MOST and len(sample) + len(rest) < COUNT:
            taken[row["part"]] += 1
            rest.append(row)
    return rest


def _next(groups: list[list[Row]], asked: set[str]) -> Row | None:
    """The next verdict of the set whose turn it is."""
    for _ in range(len(groups)):
        group = groups.pop(0)
        groups.append(group)
        while group:
            row = group.pop()
            if row["question"] not in asked:
                return row
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public sets: score them and write --fires")
    parser.add_argument("--answers", type=Path, help="answers of a model: score them and write --fires")
    parser.add_argument("--fires", type=Path, required=True)
    parser.add_argument("--half", choices=("open", "held"), default="open")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--part", help="only this part, --count verdicts of it")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--unsure", action="store_true", help="draw what is unsure instead of verdicts")
    parser.add_argument("--fresh", action="store_true", help="the texts that were kept apart")
    parser.add_argument("--pairs", choices=("question", "answer", "both"), help="answers to other questions, by what is alike")
    parser.add_argument("--rest", type=Path, help="fires of the other sets: their held half fills a sample of fresh texts")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.data or args.answers:
        with args.fires.open("w", encoding="utf-8") as file:
            if args.answers:
                verdicts = scan_answers(args.answers)
            else:
                verdicts = scan_pairs(args.data, args.pairs) if args.pairs else scan(args.data, fresh=args.fresh)
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in verdicts)
    rows = [json.loads(line) for line in args.fires.read_text(encoding="utf-8").splitlines()]
    counts = Counter((row["part"], "unsure" if row["unsure"] else "verdict", row["half"]) for row in rows)
    for key, number in sorted(counts.items()):
        print(*key, number, file=sys.stderr)
    if args.out and args.fresh:
        sample = draw_fresh(unread(args.fires), args.seed)
        if args.rest:
            sample += draw_rest(args.rest, sample, args.seed)
        args.out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in sample), encoding="utf-8")
    elif args.out:
        wanted = {args.part: args.count} if args.part else WANTED
        sample = draw([row for row in rows if row["half"] == args.half and row["unsure"] == args.unsure], wanted, args.seed)
        args.out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in sample), encoding="utf-8")


if __name__ == "__main__":
    main()
