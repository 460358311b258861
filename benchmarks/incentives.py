"""Can the reward be turned around? Right answers against harmful and gamed ones to the same question, zh + en.

    python benchmarks/incentives.py --data DIR --out incentives.json

Three questions to the default mix without a teacher, each counted in pairs; a tie counts as lost:

    reversed   for every question that is labelled emergent, does every urgent answer beat every dismissive one?
    gamed      does a gamed answer beat a good one? By kind of trick
    nonsense   does nonsense inside a template chain beat the plain answer of a model or a person?

The answers are ours (tools/cases/incentives.yaml). Without --data the questions are the bundled ones; with it they are those of
the labelled sets in DIR, and good answers are by another hand: HealthBench's ideal completions, K-QA's physicians, the best
scored consultations of DISC-MedLLM. Plain answers are those of K-QA's models and of Chinese consultations. Sets that are not
there are left out and named.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from medloop.bootstrap import wilson
from medloop.contracts import Sample
from medloop.embedded.corpus import generate
from medloop.lexicon.language import detect_language
from medloop.reward.answer_text import split_answer
from medloop.reward.detect.urgency import urgency
from medloop.reward.mix import MixConfig, RewardMix, build_mix
from medloop.reward.rules.emergency import CONDITIONAL, best_advice

CASES = Path(__file__).parent.parent / "tools/cases"
SNIPPET = {"en": 60, "zh": 16}  # characters of the question that a template quotes
MOST = 150  # good or plain answers of one set
Pair = tuple[str, str]  # question and answer
Row = dict[str, Any]


@cache
def answers() -> Row:
    return dict(yaml.safe_load((CASES / "incentives.yaml").read_text(encoding="utf-8")))


def language_of(text: str) -> str:
    return "zh" if detect_language(text) in ("zh", "mixed") else "en"


def filled(template: str, question: str) -> str:
    snippet = " ".join(question.split())[: SNIPPET[language_of(question)]].strip(" ,.，。？?")
    return template.replace("{snippet}", snippet).replace("{question}", question)


def on_emergency(kind: str, question: str) -> list[str]:
    """The urgent or dismissive answers in the language of the question, without and with a chain."""
    language = language_of(question)
    chain = filled(answers()["chains"][kind][language], question)
    plain = answers()[kind][language]
    return [*plain, *(f"<think>{chain}</think>{text}" for text in plain)]


def gamed_answers(question: str) -> list[tuple[str, str]]:
    """Kind and text of the gamed answers in the language of the question."""
    language = language_of(question)
    return [(kind, filled(text, question)) for kind, texts in answers()["gamed"].items() for text in texts[language]]


def bundled_emergencies() -> list[str]:
    lines = (CASES / "urgency.txt").read_text(encoding="utf-8").splitlines()
    return [text for line in lines for label, _, text in [line.partition(" ")] if label.startswith("E.")]


def bundled_good() -> list[Pair]:
    return [(row["question"], row["answer"]) for row in answers()["plain"]]


def bundled_plain() -> list[Pair]:
    """Safe answers of the embedded corpus, without their chain."""
    pairs = []
    for row in generate(200, seed=21):
        by_role = {message["role"]: message["content"] for message in row["messages"]}
        if row["quality"] == "good":
            pairs.append((by_role["user"], split_answer(by_role["assistant"]).visible.strip()))
    return pairs


def rows_of(folder: Path, name: str) -> list[Row]:
    path = folder / f"{name}.jsonl.gz"
    if not path.is_file():
        return []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _users(messages: Sequence[Row]) -> str:
    return "\n".join(message["content"] for message in messages if message["role"] == "user")


EMERGENT = {
    "triage_en_healthbench_emergency": lambda row: _users(row["prompt"]) if row["label"] == "emergent" else None,
    "triage_en_lostbench_pressure": lambda row: row["first_message"] if row["label"] == "emergency" else None,
    "triage_en_medicheck": lambda row: row["query"] if row["expert_severity"] == "critical" else None,
    "triage_en_ktas_ed": lambda row: row["chief_complaint"] if row["ktas_expert"] <= 2 else None,
    "triage_en_clinicaflow": lambda row: (
        f"{row['chief_complaint']}. {row.get('history', '')}" if row["risk_tier"] == "critical" else None
    ),
    "triage_en_nursesim_gpt": lambda row: row["complaint"] if row["mts_category"] <= 2 else None,
    "triage_zh_hand_labelled": lambda row: row["q"] if row["label"] == "emergent" else None,
}


def _disc(rows: list[Row], *, best: bool) -> Iterator[Pair]:
    """The answers of the best or of the worst scored model to each case."""
    for _, group in itertools.groupby(sorted(rows, key=lambda row: row["case_id"]), key=lambda row: row["case_id"]):
        ranked = sorted(group, key=lambda row: (sum(row["scores"].values()), row["model"]))
        row = ranked[-1 if best else 0]
        yield row["messages"][0]["content"], "\n".join(m["content"] for m in row["messages"] if m["role"] == "assistant")


GOOD = {
    "healthbench_examples": lambda rows: ((_users(row["prompt"]), row.get("ideal_completion") or "") for row in rows),
    "judge_en_kqa_must_have": lambda rows: ((row["question"], row["physician_answer"]) for row in rows),
    "pref_zh_disc_medllm_gpt4_scores": lambda rows: _disc(rows, best=True),
}
PLAIN = {
    "judge_en_kqa_nli_3physicians": lambda rows: ((row["question"], row["answer"]) for row in rows),
    "zh_toyhom_dialogue": lambda rows: ((row["question"], row["answer"]) for row in rows[::40]),
    "pref_zh_disc_medllm_gpt4_scores": lambda rows: _disc(rows, best=False),
}


class Judge:
    """Rewards by question and answer; each pair is scored once."""

    def __init__(self, mix: RewardMix) -> None:
        self.mix, self.known = mix, dict[Pair, float]()

    def rewards(self, question: str, texts: Sequence[str]) -> list[float]:
        new = [text for text in dict.fromkeys(texts) if (question, text) not in self.known]
        samples = [Sample(id=str(n), question=question, answer=text, group="q") for n, text in enumerate(new)]
        for text, reward in zip(new, self.mix.score(samples) if samples else (), strict=True):
            assert reward.value is not None, reward.reason
            self.known[question, text] = reward.value
        return [self.known[question, text] for text in texts]


def _share(lost: int, total: int) -> Row:
    low, high = wilson(lost, total) if total else (0.0, 1.0)
    return {"lost": lost, "pairs": total, "share": round(lost / max(total, 1), 4), "interval": [round(low, 4), round(high, 4)]}


def measure_reversed(judge: Judge, questions: dict[str, list[str]]) -> Row:
    """By set: pairs in which a dismissive answer earns as much as an urgent one, and the urgency of those questions."""
    result: Row = {}
    for name, texts in questions.items():
        lost = total = 0
        levels: Counter[str] = Counter()
        for question in texts:
            urgent, dismissive = (judge.rewards(question, on_emergency(kind, question)) for kind in ("urgent", "dismissive"))
            count = sum(right <= wrong for right in urgent for wrong in dismissive)
            lost, total = lost + count, total + len(urgent) * len(dismissive)
            levels[urgency(question).level] += count > 0
        result[name] = _share(lost, total) | {"questions": len(texts), "turned_questions_by_level": dict(levels)}
    return result


def measure_gamed(judge: Judge, sets: dict[str, list[Pair]]) -> Row:
    """By kind, set and language: pairs in which a gamed answer earns at least as much as the good one.

    A "good" answer without urgent advice to a question that the detector calls emergent is counted apart too: there the first
    property asks that urgent advice wins, whoever gives it.
    """
    kinds: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for name, pairs in sets.items():
        for question, good in pairs:
            gamed = gamed_answers(question)
            language = "language other" if detect_language(question) == "other" else f"language {language_of(question)}"
            emergent = urgency(question).level == "emergent"
            missed = ["emergent, good answer does not urge"] if emergent and best_advice(good).value <= CONDITIONAL else []
            value, *others = judge.rewards(question, [good, *(text for _, text in gamed)])
            for (kind, _), other in zip(gamed, others, strict=True):
                for key in (kind, f"set {name}", language, "all", *missed):
                    kinds[key] += 1
                    lost[key] += other >= value
    return {key: _share(lost[key], kinds[key]) for key in kinds}


def measure_nonsense(judge: Judge, sets: dict[str, list[Pair]]) -> Row:
    result: Row = {}
    for name, pairs in sets.items():
        lost = total = 0
        for question, plain in pairs:
            nonsense = [text for kind, text in gamed_answers(question) if kind == "nonsense_in_template"]
            value, *others = judge.rewards(question, [plain, *nonsense])
            lost, total = lost + sum(other >= value for other in others), total + len(others)
        result[name] = _share(lost, total)
    return result


def measure(folder: Path | None) -> Row:
    mix = build_mix(MixConfig())
    judge, absent = Judge(mix), list[str]()
    if folder is None:
        emergencies, good, plain = {"bundled": bundled_emergencies()}, {"bundled": bundled_good()}, {"bundled": bundled_plain()}
    else:
        named = {name: rows_of(folder, name) for name in (*EMERGENT, *GOOD, *PLAIN)}
        absent = [name for name, rows in named.items() if not rows]
        emergencies = {name: [text for row in named[name] if (text := pick(row))] for name, pick in EMERGENT.items()}
        good, plain = (
            {name: [pair for pair in convert(named[name]) if all(pair)][:MOST] for name, convert in sets.items()}
            for sets in (GOOD, PLAIN)
        )
    return {
        "reward": mix.version, "absent": absent, "reversed": measure_reversed(judge, emergencies),
        "gamed_beats_good": measure_gamed(judge, good), "nonsense_beats_plain": measure_nonsense(judge, plain),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the labelled sets; without it the bundled cases are used")
    parser.add_argument("--out", type=Path, default=Path("incentives.json"))
    options = parser.parse_args()
    result = measure(options.data)
    options.out.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for part in ("reversed", "gamed_beats_good", "nonsense_beats_plain"):
        for name, row in result[part].items():
            print(f"{part:22} {name:40} {row['lost']:6} of {row['pairs']:6}  {row['share']:.1%} {row['interval']}")
    if result["absent"]:
        print(f"Not there: {', '.join(result['absent'])}")


if __name__ == "__main__":
    main()
