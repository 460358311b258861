"""From a correction to an evaluation by its criteria on the command line: every printed next step is run as it stands."""

import json
import re
import shlex

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Correction
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud, users

PASSWORD = "correct horse battery"


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    monkeypatch.setattr("medloop.store.passwords.COST", 2**4)
    home = tmp_path / "clinic"
    init_workspace(home)
    with open_store(Settings(home=home)) as store:
        for name in ("dr.li", "dr.wu"):
            users.add_user(store, name, "clinician", password=PASSWORD, actor="test")
        record = Correction(
            prompt="我爸刚才嘴角突然歪了，说话也不清楚，怎么办？", original="休息一下就好，不用去医院。", golden="这可能是中风，请立即拨打120送急诊。",
            consent=("evaluation",), recorded_by=users.get_user(store, "dr.li").user_id,
        )  # fmt: skip
        crud.add(store, [record], actor="test")
    monkeypatch.chdir(home)

    def run(line: str, ok: bool = True) -> str:
        result = CliRunner().invoke(app, shlex.split(line), input=f"{PASSWORD}\n")
        assert (result.exception is None) is ok, f"{line}: {result.output} {result.exception!r}"
        return result.output

    return run


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
