"""From a correction to an evaluation by its criteria on the command line: every printed next step is run as it stands."""

import json
import re

import pytest
from corrected_clinic import corrected_clinic


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    clinicians = ("dr.li", "dr.wu")
    return corrected_clinic(
        tmp_path / "clinic", monkeypatch, clinicians=clinicians, original="休息一下就好，不用去医院。", consent=("evaluation",)
    )


def next_of(output: str) -> str:
    return re.findall(r"medloop ((?:rubric|eval) .*)", output)[-1]


def test_every_step_from_a_correction_to_an_evaluation(clinic):
    empty = clinic("rubric list")
    assert "no such criteria" in empty
    drafted = clinic(next_of(empty))
    assert "urges_care_now" in drafted and "Corrections that have criteria already: 0" in drafted
    assert "draft" in clinic("rubric list --state draft")
    shown = clinic(next_of(drafted))
    assert "Checked by: " in shown and "by dr.li" in shown
    clinic(next_of(shown).replace("dr.li", "dr.wu"), ok=False)
    accepted = clinic(next_of(shown))
    rows = json.loads(clinic("rubric list --state draft --json"))
    last = rows[-1]["criterion_id"]
    edited = clinic(f'rubric edit {last} --text "说明不要耽误" --check "mentions:120|急诊" --points 6 --user dr.li')
    assert "mentions:120|急诊" in clinic(next_of(edited))
    for row in rows[:-1]:
        clinic(f"rubric drop {row['criterion_id']} --user dr.li")
    assert "rubric" in clinic(next_of(accepted))
    exported = clinic("rubric export criteria.jsonl")
    assert "1 cases are in criteria.jsonl" in exported
    assert "rubric" in clinic(next_of(exported))


def test_mistakes_are_told_in_one_sentence(clinic):
    clinic("rubric show crit_nothing", ok=False)
    clinic("rubric export criteria.jsonl", ok=False)
    clinic("eval --model embedded:tiny --suite rubric=corrections", ok=False)
    clinic("rubric edit crit_nothing --user dr.li", ok=False)
