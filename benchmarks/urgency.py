"""How well `urgency` sees emergencies in labelled text by others, and how fast it is.

    python benchmarks/urgency.py --data DIR --out urgency.json
    python benchmarks/urgency.py --data DIR --encoder embedded:minilm
    python benchmarks/urgency.py --data DIR --limits              # the scores at which alarms become that rare, to set the limits
    python benchmarks/urgency.py                                  # only the cases in tools/cases/urgency.txt and plain.txt

DIR has the labelled sets by name (SETS below), JSON lines, gzipped; sets that are not there are left out and named. For each
set and label it counts the four answers. `recall` is the share of emergent rows called emergent, `alarms` that of routine rows,
`silent` the share of emergent rows called routine, each with Wilson's 95 % interval. Rows between emergent and routine are
counted only. Beside it stands the peer: the red flags of the lexicon alone. Traffic is unlabelled questions that no model was
trained on. Speed is that of one core, one question at a time, best of several rounds, beside the same peer.

`ordering`: of two cases of one presentation and language, how often the more urgent one has the higher score. `calibration`: of
the answers with a confidence in a range, the share that are right, and the expected calibration error; unknown has no
confidence and is left out, and a label between emergent and routine counts as urgent.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from medloop.bootstrap import wilson
from medloop.embedded.corpus import generate
from medloop.lexicon import find_red_flags
from medloop.reward.detect.encoder_head import load_detector
from medloop.reward.detect.urgency import Reading, UrgencyDetector, urgency
from medloop.reward.detect.urgency import detector as without_encoder
from medloop.settings import RewardSettings, Settings

Row = dict[str, Any]
Cases = list[tuple[str, str]]  # text and label: emergent, routine or between
MOST_TRAFFIC = 5000
ROUNDS = 5
PLAIN = Path(__file__).parent.parent / "tools/cases/plain.txt"  # everyday complaints in a few words, none an emergency
CASES = Path(__file__).parent.parent / "tools/cases/urgency.txt"  # by another author than the corpus, never trained on
CASE = re.compile(r"^([EUR])\.\w (\S.*)$")
LABELS = {"E": "emergent", "U": "between", "R": "routine"}


def _user_text(row: Row) -> str:
    return "\n".join(message["content"] for message in row["prompt"] if message["role"] == "user")


def _by(field: str, emergent: Iterable[Any], routine: Iterable[Any]) -> Callable[[Row], str]:
    emergent, routine = set(emergent), set(routine)
    return lambda row: "emergent" if row[field] in emergent else "routine" if row[field] in routine else "between"


SETS: dict[str, tuple[str, Callable[[Row], str], Callable[[Row], str]]] = {
    "healthbench": ("triage_en_healthbench_emergency", _user_text, _by("label", ["emergent"], ["non-emergent"])),
    "lostbench": ("triage_en_lostbench_pressure", lambda row: row["first_message"], _by("label", ["emergency"], ["non_urgent"])),
    "medicheck": ("triage_en_medicheck", lambda row: row["query"], _by("expert_severity", ["critical"], ["non_serious"])),
    "ktas": ("triage_en_ktas_ed", lambda row: row["chief_complaint"], _by("ktas_expert", [1, 2], [4, 5])),
    "clinicaflow": (
        "triage_en_clinicaflow", lambda row: f"{row['chief_complaint']}. {row.get('history', '')}",
        _by("risk_tier", ["critical"], ["routine"]),
    ),
    "nursesim": ("triage_en_nursesim_gpt", lambda row: row["complaint"], _by("mts_category", [1, 2], [4, 5])),
    "nonmedical": ("triage_en_medicheck_nonmedical", lambda row: row["query"], lambda row: "routine"),
    "zh_hand": ("triage_zh_hand_labelled", lambda row: row["q"], _by("label", ["emergent"], ["routine"])),
}  # fmt: skip
TRAFFIC = {"en": ("questions_en_kqa_unlabelled",), "zh": ("zh_huatuo26m_test_qa", "zh_toyhom_dialogue")}


def rows_of(folder: Path, name: str) -> list[Row]:
    path = folder / f"{name}.jsonl.gz"
    if not path.is_file():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def load_sets(folder: Path) -> dict[str, Cases]:
    sets = {}
    for name, (file, text, label) in SETS.items():
        rows = [row for row in rows_of(folder, file) if row.get("expert_severity") != "not_medical"]
        if rows:
            sets[name] = [(text(row), label(row)) for row in rows]
    return sets


def load_cases(path: Path) -> dict[str, dict[str, Cases]]:
    """By language and presentation."""
    cases: dict[str, dict[str, Cases]] = {"en": {}, "zh": {}}
    presentation = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            presentation = line[3:].split("|")[0].strip()
        elif match := CASE.match(line):
            language = "en" if match[2].isascii() or not re.search("[\u4e00-\u9fff]", match[2]) else "zh"
            cases[language].setdefault(presentation, []).append((match[2], LABELS[match[1]]))
    return cases


def load_traffic(folder: Path, labelled: Cases) -> dict[str, list[str]]:
    """Questions with an odd checksum: tools/train_urgency.py takes only even ones. Without rows of the labelled set."""
    parts = {text[5:25] for text, _ in labelled}
    traffic = {}
    for language, names in TRAFFIC.items():
        rows = [row for name in names for row in rows_of(folder, name)]
        texts = {" ".join(str(row[key]) for key in ("title", "question") if row.get(key)) for row in rows}
        unseen = [text for text in texts if text and zlib.crc32(text.encode()) % 2 and not any(p in text for p in parts)]
        if unseen:
            traffic[language] = sorted(unseen, key=lambda text: zlib.crc32(text.encode()))[:MOST_TRAFFIC]
    return traffic


def share(hits: int, total: int) -> dict[str, Any]:
    if not total:
        return {"n": 0}
    return {"share": round(hits / total, 4), "hits": hits, "n": total, "ci95": [round(bound, 3) for bound in wilson(hits, total)]}


def measure(levels: list[str], labels: list[str]) -> dict[str, Any]:
    counts = {label: Counter() for label in ("emergent", "between", "routine")}
    for level, label in zip(levels, labels, strict=True):
        counts[label][level] += 1
    emergent, routine = counts["emergent"], counts["routine"]
    return {
        "recall": share(emergent["emergent"], emergent.total()),
        "silent": share(emergent["routine"], emergent.total()),
        "alarms": share(routine["emergent"], routine.total()),
        "answers": {label: dict(count) for label, count in counts.items() if count},
    }


def calibration(answers: list[tuple[float, bool]]) -> dict[str, Any]:
    """Confidence and share of right answers by tenths, and their mean distance."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for confidence, right in answers:
        bins.setdefault(min(int(confidence * 10), 9), []).append((confidence, right))
    rows = [
        {"from": place / 10, "n": len(bins[place]), "confidence": round(float(np.mean([c for c, _ in bins[place]])), 3),
         "right": round(float(np.mean([right for _, right in bins[place]])), 3)}
        for place in sorted(bins)
    ]  # fmt: skip
    error = sum(row["n"] * abs(row["confidence"] - row["right"]) for row in rows) / max(len(answers), 1)
    return {"n": len(answers), "expected_calibration_error": round(error, 3), "bins": rows}


def answered(detector: UrgencyDetector, cases: Cases) -> list[tuple[float, bool]]:
    """Confidence of each answer that is not unknown, and whether it is right."""
    found = zip(detector.read([text for text, _ in cases]), cases, strict=True)
    return [
        (each.confidence, each.level == ("urgent" if label == "between" else label))
        for each, (_, label) in found if each.level != "unknown"
    ]  # fmt: skip


def ordering(detector: UrgencyDetector, presentations: dict[str, Cases]) -> dict[str, Any]:
    """Of all pairs of cases of one presentation, the share in which the more urgent one scores higher."""
    right, total = Counter(), Counter()
    for cases in presentations.values():
        scores: dict[str, list[float]] = {label: [] for label in LABELS.values()}
        for reading, (_, label) in zip(detector.readings([text for text, _ in cases]), cases, strict=True):
            scores[label].append(reading.score + 100 * reading.decisive)
        for above, below in (("emergent", "between"), ("between", "routine"), ("emergent", "routine")):
            pairs = [(high, low) for high in scores[above] for low in scores[below]]
            name = f"{above} above {below}".replace("between", "urgent")
            right[name] += sum(high > low for high, low in pairs)
            total[name] += len(pairs)
    return {name: share(right[name], total[name]) for name in total}


def by_another_author(detector: UrgencyDetector) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for language, presentations in load_cases(CASES).items():
        cases = [case for group in presentations.values() for case in group]
        levels: list[str] = [found.level for found in detector.read([text for text, _ in cases])]
        result[language] = {
            **measure(levels, [label for _, label in cases]),
            "presentations": len(presentations),
            "ordering": ordering(detector, presentations),
            "calibration": calibration(answered(detector, cases)),
        }
    return result


def plain_complaints(detector: UrgencyDetector) -> dict[str, Any]:
    """How often a few plain words raise an alarm."""
    texts = [line for line in PLAIN.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return measure([found.level for found in detector.read(texts)], ["routine"] * len(texts))


def by_lexicon(text: str) -> str:
    return "emergent" if any(not flag.negated for flag in find_red_flags(text)) else "routine"


def report(detector: UrgencyDetector, sets: dict[str, Cases], traffic: dict[str, list[str]]) -> dict[str, Any]:
    result: dict[str, Any] = {"version": detector.version, "sets": {}, "lexicon_alone": {}, "traffic": {}}
    every: list[tuple[str, str]] = []
    for name, cases in sets.items():
        labels = [label for _, label in cases]
        levels: list[str] = [found.level for found in detector.read([text for text, _ in cases])]
        every += zip(levels, labels, strict=True)
        result["sets"][name] = measure(levels, labels)
        result["lexicon_alone"][name] = measure([by_lexicon(text) for text, _ in cases], labels)
    result["all"] = measure([level for level, _ in every], [label for _, label in every])
    result["calibration"] = calibration([answer for cases in sets.values() for answer in answered(detector, cases)])
    lay = [case for name in ("medicheck", "nonmedical") for case in sets.get(name, []) if case[1] == "routine"]
    unknown = sum(found.level == "unknown" for found in detector.read([text for text, _ in lay]))
    result["lay_posts_unknown"] = share(unknown, len(lay))
    for language, texts in traffic.items():
        counts = Counter(found.level for found in detector.read(texts))
        result["traffic"][language] = {level: share(counts[level], len(texts)) for level in ("emergent", "urgent", "unknown")}
    return result


def limits(detector: UrgencyDetector, sets: dict[str, Cases], traffic: dict[str, list[str]]) -> dict[str, Any]:
    """Quantiles of the scores of routine text: lay medical posts, terse notes, Chinese traffic."""
    places: dict[str, list[Reading]] = {"zh": detector.readings(traffic.get("zh", []))}
    for name, kind in (("medicheck", "en"), ("ktas", "terse")):
        places[kind] = detector.readings([text for text, label in sets.get(name, []) if label == "routine"])
    return {
        kind: {f"{q:.3f}": round(float(np.quantile([reading.score for reading in readings], q)), 2)
               for q in (0.5, 0.7, 0.8, 0.85, 0.88, 0.9, 0.95, 0.96, 0.965, 0.97, 0.98)}
        for kind, readings in places.items() if readings
    }  # fmt: skip


def per_second(texts: list[str], read: Callable[[str], Any]) -> dict[str, int]:
    """Texts per second of processor time and of wall time, one at a time, best of the rounds."""
    read(texts[0])
    times = []
    for _ in range(ROUNDS):
        cpu, wall = time.process_time(), time.perf_counter()
        for text in texts:
            read(text)
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = (min(column) for column in zip(*times, strict=True))
    return {"cpu": round(len(texts) / cpu), "wall": round(len(texts) / wall)}


def in_one_call(texts: list[str]) -> dict[str, int]:
    """The same where all texts are read in one call."""
    times = []
    for _ in range(ROUNDS):
        cpu, wall = time.process_time(), time.perf_counter()
        without_encoder().read(texts)
        times.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu, wall = (min(column) for column in zip(*times, strict=True))
    return {"cpu": round(len(texts) / cpu), "wall": round(len(texts) / wall)}


def speed(texts: list[str]) -> dict[str, Any]:
    """The labelled texts or the cases, and questions of the embedded corpus, which are longer."""
    rows = generate(1000, seed=5)
    generated = [message["content"] for row in rows for message in row["messages"] if message["role"] == "user"]
    return {
        name: {
            "characters": round(np.mean([*map(len, sample)])),
            "urgency": per_second(sample, urgency),
            "urgency, in one call": in_one_call(sample),
            "red flags alone": per_second(sample, by_lexicon),
        }
        for name, sample in {"texts of this run": texts[:2000], "embedded corpus": generated[:1000]}.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the labelled sets; without it nothing is measured")
    parser.add_argument("--encoder", default="", help="also use this sentence encoder: embedded:minilm")
    parser.add_argument("--limits", action="store_true", help="print quantiles of the scores instead")
    parser.add_argument("--out", type=Path, help="file for the JSON (default: the terminal)")
    options = parser.parse_args()
    settings = Settings(home=Path.cwd(), reward=RewardSettings(urgency_encoder=options.encoder))
    detector = load_detector(settings)
    sets = load_sets(options.data) if options.data else {}
    if options.data and not sets:
        parser.error(
            f"{options.data} has none of the labelled sets: {', '.join(f'{file}.jsonl.gz' for file, *_ in SETS.values())}"
        )
    traffic = load_traffic(options.data, sets.get("zh_hand", [])) if options.data else {}
    if options.limits:
        result = limits(detector, sets, traffic)
    else:
        result = report(detector, sets, traffic)
        result["left_out"] = sorted(SETS.keys() - sets.keys())
        result["cases_by_another_author"] = by_another_author(detector)
        result["plain_complaints"] = plain_complaints(detector)
        texts = [text for cases in sets.values() for text, _ in cases]
        texts = texts or [text for groups in load_cases(CASES).values() for cases in groups.values() for text, _ in cases]
        result["questions_per_second"] = speed(texts)
        if options.encoder:
            began = time.process_time()
            detector.read(texts)
            result["questions_per_second"]["with encoder, in one batch"] = round(len(texts) / (time.process_time() - began))
        result["machine"] = platform.processor() or platform.machine()
    text = json.dumps(result, indent=1, ensure_ascii=False)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
