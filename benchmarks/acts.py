"""How right the acts of answers, and the verdicts `risk` and `false_reassurance`, are on text by others, and on held cases.

    python benchmarks/acts.py --data DIR --out acts.json

DIR has public sets as `NAME.jsonl.gz` (SETS below); sets that are not there are left out and named. Nothing is trained on them.

    held cases    tools/cases/acts.txt: answers with a label, by another style than the corpus; recall and precision by language.
                  Misses of the first two parts were read to find classes of mistakes. The third part was written before
                  the classes of lexicon/hazards.yaml by their author, the fourth afterwards, about kinds that no list had.
                  From the fifth on, language models wrote them that have seen neither rules nor lists
                  "risk, asserted": only what the rule calls a verdict; what it is unsure of counts as not seen
    judged        benchmarks/acts_judged.json: ids of real answers that one reader (no clinician) judged. `right` is the share on
                  which reader and rule agree; what the reader saw were verdicts above 0 of an earlier version, so that recall on
                  them says little. "stops": does the answer tell this patient to stop a medicine, or warn against it
    graded        benchmarks/acts_graded.json: ids of real answers that language models (no clinicians) read one by one without
                  the verdicts: [risk, reassurance], 2 is a clear fault, 1 arguable, 0 none. None of them was trained on. How many
                  were read, and how many have a verdict above 0; most were drawn at random, some because an earlier version
                  gave a verdict
    labels        replies to cancer patients with the content that oncologists saw in them (urgent visit, contingency, ...), and
                  chatbots' answers to people at risk that people called safe or unsafe
    speed         processor time per answer of `acts`, and of both verdicts, on one core
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from medloop.bootstrap import wilson
from medloop.contracts.score import asserts_fault
from medloop.reward.detect.acts import acts
from medloop.reward.rules import RULES

HERE = Path(__file__).parent
CASES = HERE.parent / "tools/cases/acts.txt"
JUDGED = HERE / "acts_judged.json"
GRADED = HERE / "acts_graded.json"
ASSERTED = 0.25  # from here on a penalty is a verdict, unless the rule is unsure
PARTS = ("second", "third", "fourth", "fifth", "sixth", "seventh")
VERDICTS = {"R": "risk", "F": "false_reassurance"}
Row = dict[str, Any]
Answer = tuple[str, str, str]  # id, question, answer


def held_cases(path: Path) -> Iterator[tuple[str, str, bool, str, str]]:
    """Rule, part of the file with its language, label, question and answer of each line."""
    question, language = "", ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            name, question = line[3:].split(" | ", 1)
            part = next((f"{word} part, " for word in PARTS if name.startswith(f"{word}_")), "")
            language = part + name.rsplit("_", 1)[1]
        elif line[:1] in VERDICTS and line[1:2] in "+-":
            yield VERDICTS[line[0]], language, line[1] == "+", question, line[3:]


def fires(rule: str, question: str, answer: str) -> bool:
    score = RULES[rule].score(question, answer)
    return score.applies and score.value > 0


def counts(pairs: list[tuple[bool, bool]]) -> Row:
    """Of pairs of label and verdict."""
    both = sum(label and verdict for label, verdict in pairs)
    positives, verdicts = sum(label for label, _ in pairs), sum(verdict for _, verdict in pairs)
    right = sum(label == verdict for label, verdict in pairs)
    return {
        "answers": len(pairs), "recall": share(both, positives), "precision": share(both, verdicts),
        "right": share(right, len(pairs)),
    }  # fmt: skip


def share(part: int, whole: int) -> Row | None:
    if not whole:
        return None
    low, high = wilson(part, whole)
    return {"of": f"{part}/{whole}", "share": round(part / whole, 3), "interval": [round(low, 3), round(high, 3)]}


def dialogue(row: Row) -> Iterator[Answer]:
    messages = row.get("messages") or row["prompt"]
    for index, message in enumerate(messages):
        if message["role"] == "assistant" and index:
            yield f"{row['id']}#{index}", messages[index - 1]["content"], message["content"]
    if isinstance(row.get("ideal_completion"), str):
        yield f"{row['id']}#ideal", messages[-1]["content"], row["ideal_completion"]


def pair(question: str, answer: str) -> Callable[[Row], Iterator[Answer]]:
    def rows(row: Row) -> Iterator[Answer]:
        yield str(row["id"]), f"{row.get('title', '')} {row[question]}".strip(), row[answer]

    return rows


def drafts(row: Row) -> Iterator[Answer]:
    for name in ("gpt4_draft", "physician_edited"):
        yield f"{row['id']}#{name}", row["patient_context_and_message"], row.get(name) or ""


SETS: dict[str, Callable[[Row], Iterator[Answer]]] = {
    "zh_toyhom_dialogue": pair("question", "answer"),
    "zh_huatuo26m_test_qa": pair("question", "answer"),
    "zh_cmtmedqa_multiturn": dialogue,
    "pref_zh_disc_medllm_gpt4_scores": dialogue,
    "healthbench_examples": dialogue,
    "healthbench_meta_eval97": lambda row: iter([(str(row["id"]), row["prompt"][-1]["content"], row["completion"])]),
    "safety_en_diasafety_medical": pair("context", "response"),
    "safety_zh_mental_health_dialogue": pair("context", "response"),
    "safety_zh_safetybench_health": lambda row: (
        (f"{row['id']}#{index}", row["question"], option) for index, option in enumerate(row["options"])
    ),
    "triage_en_medicheck": lambda row: (
        (f"{row['id']}#{reply['system']}", row["query"], reply["text"]) for reply in row["responses"]
    ),
    "judge_en_kqa_must_have": pair("question", "physician_answer"),
    "judge_en_kqa_nli": pair("question", "answer"),
    "rate_en_oncqa_gpt4_drafts": drafts,
}
FILES = {"judge_en_kqa_nli": "judge_en_kqa_nli_3physicians"}


def read(folder: Path, name: str) -> list[Row] | None:
    path = folder / f"{FILES.get(name, name)}.jsonl.gz"
    if not path.exists():
        return None
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def judged(folder: Path) -> tuple[Row, list[str]]:
    """What the reader judged, against the verdicts of today."""
    labels = json.loads(JUDGED.read_text(encoding="utf-8"))
    pairs: dict[str, list[tuple[bool, bool]]] = {}
    absent = []
    for name, by_id in labels.items():
        rows = read(folder, name)
        if rows is None:
            absent.append(name)
            continue
        for row in rows:
            for id, question, answer in SETS[name](row):
                for kind, label in by_id.pop(id, {}).items():
                    pairs.setdefault(kind, []).append((label, verdict(kind, question, answer)))
    return {kind: counts(rows) for kind, rows in sorted(pairs.items())}, absent


def graded(folder: Path) -> Row:
    """Verdicts above 0 on answers that were read without them, by grade."""
    labels = json.loads(GRADED.read_text(encoding="utf-8"))
    result: dict[str, Counter[str]] = {rule: Counter() for rule in VERDICTS.values()}
    for name, by_id in labels.items():
        for row in read(folder, name) or ():
            for id, question, answer in SETS[name](row):
                for rule, grade in zip(result, by_id.pop(id, ()), strict=False):
                    result[rule][f"grade {grade}, read"] += 1
                    result[rule][f"grade {grade}, verdict above 0"] += fires(rule, question, answer)
    return {rule: dict(sorted(cells.items())) for rule, cells in result.items()}


def verdict(kind: str, question: str, answer: str) -> bool:
    if kind in RULES:
        return fires(kind, question, answer)
    polarity = kind.removeprefix("stops_")
    return any(act.kind == "stops_medicine" and act.polarity == polarity for act in acts(answer))


def labelled(folder: Path) -> tuple[Row, list[str]]:
    """Sets whose labels by others are near to an act or a verdict."""
    result: Row = {}
    absent = []
    for name, measure in (("content_en_oncqa_reply_labels", oncology), ("safety_en_diasafety_medical", unsafe)):
        rows = read(folder, name)
        if rows is None:
            absent.append(name)
        else:
            result[name] = measure(rows)
    return result, absent


def oncology(rows: list[Row]) -> Row:
    kinds = {
        "UrgentVisit": lambda act: act.kind == "urges_care_now" and act.polarity == "directive",
        "Contingency": lambda act: act.kind in ("urges_care_now", "sends_to_doctor") and act.polarity == "conditional",
        "NonurgentVisit": lambda act: act.kind == "sends_to_doctor" and act.polarity == "directive",
        "Manage": lambda act: act.kind == "home_care" and act.polarity == "directive",
    }
    result = {}
    for label, is_kind in kinds.items():
        pairs = []
        for row in rows:
            if label in row["content"]:
                pairs.append((bool(row["content"][label]), any(is_kind(act) for act in acts(row["reply"]))))
        result[label] = counts(pairs)
    return result


def unsafe(rows: list[Row]) -> Row:
    verdicts = Counter((row["label"], fires("false_reassurance", row["context"], row["response"])) for row in rows)
    calls = verdicts["Unsafe", True] + verdicts["Safe", True]
    return {"false reassurance that people called unsafe": share(verdicts["Unsafe", True], calls), "answers": len(rows)}


def speed(cases: list[tuple[str, str]]) -> Row:
    def microseconds(work: Callable[[str, str], object]) -> float:
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            for question, answer in cases:
                work(question, answer)
            best = min(best, time.process_time() - began)
        return round(best / len(cases) * 1e6, 1)

    verdicts = [RULES[name] for name in VERDICTS.values()]
    return {
        "microseconds of acts": microseconds(lambda question, answer: acts(answer)),
        "microseconds of both verdicts": microseconds(lambda q, a: [rule.score(q, a) for rule in verdicts]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of the public sets")
    parser.add_argument("--out", type=Path, default=Path("acts.json"))
    args = parser.parse_args()
    pairs: dict[str, list[tuple[bool, bool]]] = {}
    cases = list(held_cases(CASES))
    for rule, language, label, question, answer in cases:
        pairs.setdefault(f"{rule} {language}", []).append((label, fires(rule, question, answer)))
        pairs.setdefault(rule, []).append(pairs[f"{rule} {language}"][-1])
        pairs.setdefault(f"{rule}, asserted", []).append((label, asserts_fault(RULES[rule].score(question, answer), ASSERTED)))
    by_reader, no_reader = judged(args.data)
    by_others, no_others = labelled(args.data)
    result = {
        "rules": {name: RULES[name].version for name in VERDICTS.values()},
        "held cases": {name: counts(rows) for name, rows in sorted(pairs.items())},
        "judged": by_reader,
        "graded": graded(args.data),
        "labels": by_others,
        "absent": sorted({*no_reader, *no_others}),
        "speed": speed([(question, answer) for *_, question, answer in cases]),
    }
    text = json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    args.out.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
