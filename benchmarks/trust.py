"""The default reward against labels by other people: one validity card over public sets, and by set.

    python benchmarks/trust.py --data FOLDER --out trust.json
    python benchmarks/trust.py --data FOLDER --cases cases.jsonl && medloop reward validate cases.jsonl      # the same numbers

FOLDER has the sets as `NAME.jsonl.gz`; those that are not there are left out and named. The sets only measure: nothing is
trained on them. Each set becomes labelled cases as `medloop reward validate` reads them (docs/stages/trust.md):

    triage_*                  the urgency of questions; levels 1 and 2 of five are emergent, 3 urgent, 4 and 5 routine
    pref_, rank_, judge_,     pairs of answers: scores that differ by 0.75 of 5, excellent against incorrect, right against wrong,
    safety_zh_safetybench     safe against unsafe
    acts_held, acts_judged    faults `risk` and `false_reassurance`: tools/cases/acts.txt, and real answers by the ids in
                              benchmarks/acts_judged.json, judged by one reader who is no clinician
    rate_en_oncqa             `harm` of drafts that oncologists rated: moderate, severe or death, against none
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import acts

from medloop.contracts.validity import ALL, LabelledCase
from medloop.data.text.risk import strata_of
from medloop.reward.detect.urgency import urgency
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.rules import RULES
from medloop.reward.trust import TrustConfig, measure
from medloop.reward.trust_page import page
from medloop.store.files import jsonl

Row = dict[str, Any]
LEVELS = {"emergent": "emergent", "emergency": "emergent", "critical": "emergent", "urgent": "urgent", "serious": "urgent"}
LEVELS |= {"conditionally-emergent": "urgent", "non-emergent": "routine", "non_urgent": "routine", "non_serious": "routine"}
LEVELS |= {"routine": "routine", "non_medical": "routine"}
MIN_GAP = 0.75  # points of 5 between two answers before one counts as better


def triage(question: Callable[[Row], str], level: Callable[[Row], Any]) -> Callable[[list[Row]], Iterator[Row]]:
    def cases(rows: list[Row]) -> Iterator[Row]:
        for row in rows:
            found = level(row)
            if found in LEVELS and question(row).strip():
                yield {"id": str(row["id"]), "question": question(row), "urgency": LEVELS[found]}

    return cases


def by_number(field: str) -> Callable[[Row], str]:
    return lambda row: "emergent" if row[field] <= 2 else "urgent" if row[field] == 3 else "routine"


def user_text(messages: list[Row], role: str = "user") -> str:
    return "\n".join(message["content"] for message in messages if message["role"] == role)


def disc_pairs(rows: list[Row]) -> Iterator[Row]:
    """Whole consultations by six models, scored 1 to 5 by GPT-4 on four criteria."""
    by_case: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_case[row["case_id"]].append(row)
    for case, answers in by_case.items():
        for first, second in itertools.combinations(answers, 2):
            means = [sum(row["scores"].values()) / len(row["scores"]) for row in (first, second)]
            if abs(means[0] - means[1]) >= MIN_GAP:
                better, worse = (first, second) if means[0] > means[1] else (second, first)
                yield {
                    "id": f"{case}/{better['model']}/{worse['model']}", "question": user_text(better["messages"][:1]),
                    "chosen": user_text(better["messages"], "assistant"), "rejected": user_text(worse["messages"], "assistant"),
                }  # fmt: skip


def liveqa_pairs(rows: list[Row]) -> Iterator[Row]:
    """Answers judged by hand: excellent against incorrect."""
    by_question: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_question[row["qid"]][row["judgment"]].append(row)
    for qid, judged in by_question.items():
        for n, (good, bad) in enumerate(itertools.product(judged["excellent"], judged["incorrect"])):
            yield {"id": f"liveqa/{qid}/{n}", "question": good["question"], "chosen": good["answer"], "rejected": bad["answer"]}


def judgebench_pairs(rows: list[Row]) -> Iterator[Row]:
    for row in rows:
        answers = {"A": row["response_A"], "B": row["response_B"]}
        worse = "B" if row["better"] == "A" else "A"
        yield {"id": row["id"], "question": row["question"], "chosen": answers[row["better"]], "rejected": answers[worse]}


def safetybench_pairs(rows: list[Row]) -> Iterator[Row]:
    """The safe choice against each unsafe one."""
    for row in rows:
        for n, option in enumerate(row["options"]):
            if n != row["answer_index"]:
                yield {"id": f"{row['id']}/{n}", "question": row["question"], "chosen": row["answer"], "rejected": option}


def oncqa_harm(rows: list[Row]) -> Iterator[Row]:
    """Drafts that oncologists rated, one rater each; mild harm says little and is left out."""
    for row in rows:
        if (extent := str(row.get("harm_extent"))) not in ("None", "Mild harm"):
            case = {"id": str(row["id"]), "question": row["patient_context_and_message"], "answer": row["gpt4_draft"]}
            yield case | {"harm": extent != "No harm", "specialty": "oncology"}


def held_faults() -> Iterator[Row]:
    """Answers of tools/cases/acts.txt with the fault that they have or do not have."""
    for n, (rule, _, label, question, answer) in enumerate(acts.held_cases(acts.CASES)):
        yield {"id": f"acts_held/{n}", "question": question, "answer": answer, "faults": {rule: label}, "source": "acts_held"}


def judged_faults(folder: Path) -> Iterator[Row]:
    """Real answers that one reader judged; the sets lie in the folder, the judgements here."""
    for name, by_id in json.loads(acts.JUDGED.read_text(encoding="utf-8")).items():
        for row in acts.read(folder, name) or ():
            for id, question, answer in acts.SETS[name](row):
                if faults := {kind: label for kind, label in by_id.get(id, {}).items() if kind in RULES}:
                    case = {"id": f"acts_judged/{name}/{id}", "question": question, "answer": answer}
                    yield case | {"faults": faults, "source": "acts_judged"}


SETS: dict[str, Callable[[list[Row]], Iterator[Row]]] = {
    "triage_en_healthbench_emergency": triage(lambda row: user_text(row["prompt"]), lambda row: row["label"]),
    "triage_en_lostbench_pressure": triage(lambda row: row["first_message"], lambda row: row["label"]),
    "triage_en_medicheck": triage(lambda row: row["query"], lambda row: row["expert_severity"]),
    "triage_en_medicheck_nonmedical": triage(lambda row: row["query"], lambda row: row["label"]),
    "triage_en_ktas_ed": triage(lambda row: row["chief_complaint"], by_number("ktas_expert")),
    "triage_en_nursesim_gpt": triage(lambda row: row["complaint"], by_number("mts_category")),
    "triage_en_clinicaflow": triage(
        lambda row: f"{row['chief_complaint']}. {row.get('history', '')}", lambda row: row["risk_tier"]
    ),
    "triage_zh_hand_labelled": triage(lambda row: row["q"], lambda row: row["label"]),
    "pref_zh_disc_medllm_gpt4_scores": disc_pairs,
    "rank_en_liveqa_medquad_judged": liveqa_pairs,
    "judge_en_judgebench_health": judgebench_pairs,
    "safety_zh_safetybench_health": safetybench_pairs,
    "rate_en_oncqa_gpt4_drafts": oncqa_harm,
}


def read(folder: Path) -> tuple[list[LabelledCase], list[str]]:
    cases, absent = [], []
    for name, convert in SETS.items():
        path = folder / f"{name}.jsonl.gz"
        if not path.is_file():
            absent.append(name)
            continue
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        cases += [LabelledCase.model_validate({**case, "id": f"{name}/{case['id']}", "source": name}) for case in convert(rows)]
    if cases:
        cases += [LabelledCase.model_validate(case) for case in (*held_faults(), *judged_faults(folder))]
    return cases, absent


def longer_wins(cases: list[LabelledCase]) -> float:
    """Agreement of a judge that prefers the longer answer, a tie as half: what a reward has to beat."""
    pairs = [(len(case.chosen), len(case.rejected)) for case in cases if case.chosen and case.rejected]
    return sum((chosen > rejected) + 0.5 * (chosen == rejected) for chosen, rejected in pairs) / max(len(pairs), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the labelled sets; without it nothing is measured")
    parser.add_argument("--cases", type=Path, metavar="FILE", help="write the cases for 'medloop reward validate FILE' as well")
    parser.add_argument("--out", type=Path, metavar="FILE", help="measure here, and write the card")
    options = parser.parse_args()
    if not (options.cases or options.out):
        parser.error("name --cases, --out, or both")
    cases, absent = read(options.data) if options.data else ([], list(SETS))
    if cases and options.cases:
        jsonl.write(options.cases, cases)
        print(f"{len(cases):,} cases -> {options.cases}; not there: {', '.join(absent) or 'none'}")
    if not options.out:
        return
    if not cases:
        options.out.write_text(json.dumps({"absent": absent}, indent=2) + "\n", encoding="utf-8")
        print("No labelled sets: name their folder with --data.")
        return
    card = measure(cases, build_mix(MixConfig()), config=TrustConfig(), urgency=urgency, strata=strata_of)
    options.out.write_text(
        json.dumps({"absent": absent, "longer_wins": longer_wins(cases), "card": card.model_dump(mode="json")}, indent=2) + "\n",
        encoding="utf-8",
    )
    print(page(card))
    print(f"A judge that prefers the longer answer agrees on {longer_wins(cases):.2f} of the pairs.")
    print(f"{sum(row.slice == ALL for row in card.measures)} measures; not there: {', '.join(absent) or 'none'}")


if __name__ == "__main__":
    main()
