"""From a correction to a live rule on the command line: every printed next step is run as it stands, with the built-in model."""

import json
import re

import pytest
from corrected_clinic import corrected_clinic


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    clinicians = ("dr.li", "dr.wu", "dr.ma")
    return corrected_clinic(
        tmp_path / "clinic", monkeypatch, clinicians=clinicians, original="休息一下就好。", consent=("training",)
    )


def next_of(output: str) -> str:
    return re.findall(r"medloop (codebook .*)", output)[-1]


def test_every_step_from_a_correction_to_a_live_rule_and_back(clinic):
    empty = clinic("codebook list")
    assert "no entries yet" in empty
    proposed = clinic(next_of(empty))
    assert "Proposals: 1" in proposed
    shown = clinic(next_of(proposed))
    assert "First sentence: 这可能是中风，请立即拨打120送急诊。" in shown
    tried = clinic(next_of(shown))
    assert "embedded:tiny" in tried and "0 worse: better" in tried
    live = clinic(next_of(tried).replace("NAME", "dr.wu"))
    assert "Version 1 of the codebook is live" in live
    entry = json.loads(clinic("codebook list --json"))["entries"][0]
    assert entry["state"] == "active" and entry["approver"]
    edited = clinic(f'codebook edit {entry["entry_id"]} --trigger "中风|stroke" --expires 2030-01-31 --user dr.li')
    assert "Tried with embedded:tiny" in clinic(next_of(edited))
    clinic(f'codebook retire {entry["entry_id"]} --reason "Tried it." --user dr.wu')
    clinic('codebook rollback 1 --reason "It was needed." --user dr.wu')
    history = json.loads(clinic("codebook history --json"))
    assert [row["action"] for row in history] == ["rollback", "retire", "approve"]
    clinic("codebook export rules.jsonl")
    assert clinic("codebook try " + entry["entry_id"] + " --json")


def test_a_written_rule_needs_its_author_and_names_nobody(clinic):
    clinic('codebook propose --text "Ask for the weight first."', ok=False)
    clinic('codebook propose --text "王小明的电话是13800138000" --user dr.li', ok=False)
    proposed = clinic('codebook propose --text "Ask for the weight first." --trigger "child|儿童" --user dr.li')
    entry = next_of(proposed).split()[-1]
    clinic(f"codebook approve {entry} --refuse --user dr.wu")
    assert json.loads(clinic("codebook list --state refused --json"))["entries"][0]["entry_id"] == entry


def test_without_new_corrections_the_list_does_not_send_people_round_in_a_circle(clinic):
    """Seen: `propose` found nothing, `list` said to run `propose`."""
    entry = next_of(clinic("codebook propose")).split()[-1]
    clinic(f"codebook approve {entry} --refuse --user dr.wu")
    for output in (clinic("codebook propose"), clinic("codebook list --state active")):
        assert "Nobody has corrected an answer since the last look" in output and "Next:" not in output
    assert "No entry is active; entries in other states: 1." in output and "no entries yet" not in output
    clinic("codebook list --state activ", ok=False)
