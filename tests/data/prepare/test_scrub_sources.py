"""`medloop data prepare --scrub`: identifiers go before anything is stored for training, doubtful rows wait for a person."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from data_desk import Desk
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import DatasetCard
from medloop.contracts.dataset import SPLIT_FILES
from medloop.data.prepare import prepare as stage
from medloop.embedded.corpus import generate
from medloop.privacy.phi import scrub
from medloop.privacy.phi.scrub import Assessment
from medloop.store.files import artifacts

NAMED = {"question": "患者王芳，手机13800138000，膝盖疼了三天怎么办？", "answer": "王芳女士，请先休息，需要时拨打13800138000。"}
DOUBTFUL = "A sentence that the scrubber is made to doubt, about a sore heel."


def rows() -> list[dict[str, Any]]:
    conversations = ({"messages": row["messages"]} for row in generate(60, seed=3))
    named = {"messages": [{"role": "user", "content": NAMED["question"]}, {"role": "assistant", "content": NAMED["answer"]}]}
    odd = {"messages": [{"role": "user", "content": DOUBTFUL}, {"role": "assistant", "content": "Rest the heel for some days."}]}
    return [*conversations, named, odd]


@pytest.fixture
def filled(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    real = scrub.Scrubber.assess

    def fussy(self: Any, text: str) -> Assessment:
        """As it is about the person; one sentence in doubt, and the made-up rest not."""
        doubt = 0.9 if text == DOUBTFUL else 0.0
        return real(self, text) if text in NAMED.values() else Assessment(text, (), doubt, ("a name",) if doubt else ())

    monkeypatch.setattr(scrub.Scrubber, "assess", fussy)
    desk.import_rows("a", rows())
    return desk


def side_file(desk: Desk) -> Path:
    return desk.home / "data/processed.quarantine.jsonl"


def everything(desk: Desk) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted(desk.processed.iterdir()))


def test_the_list_of_held_feedback_says_where_rows_of_files_are(filled: Desk) -> None:
    """Seen: `prepare` left rows out, and `quarantine list` said that nothing waits."""
    listing = ["--home", str(filled.home), "quarantine", "list"]
    assert CliRunner().invoke(app, listing).output == "No records of feedback are waiting.\n"
    assert filled.run("prepare", "--scrub", "--gold", "2", "--red", "2").code == 0
    assert "data/processed.quarantine.jsonl" in CliRunner().invoke(app, listing).output


def test_a_person_has_one_placeholder_in_a_row_and_the_card_counts(filled: Desk) -> None:
    result = filled.run("prepare", "--scrub", "--gold", "2", "--red", "2")
    assert (
        result.code == 0 and "identifiers were removed from" in result.out and "1 rows may still identify a person" in result.out
    )
    said = " ".join(result.out.split())
    assert "data/processed.quarantine.jsonl" in said and "import that with --replace and prepare again" in said
    text = everything(filled)
    assert "王芳" not in text and "13800138000" not in text and DOUBTFUL not in text
    every = [row for name in SPLIT_FILES.values() for row in filled.records(name)]
    turns = next(
        row["conversation"]["messages"] for row in every if "膝盖疼了三天" in row["conversation"]["messages"][0]["content"]
    )
    assert all("[NAME_1]" in turn["content"] and "[PHONE_1]" in turn["content"] for turn in turns)
    card = DatasetCard.from_json((filled.processed / "card.json").read_text(encoding="utf-8"))
    assert card.scrub is not None and card.scrub["rows"] == 62 and card.scrub["rows_held"] == 1 == card.drops["a"]["phi"]
    assert card.scrub["PHONE"] >= 2 and "scrubber" in card.versions
    assert "## Identifiers of persons: taken out" in filled.run("card").out


def test_rows_in_doubt_are_for_their_owner_alone_and_named_in_the_list_of_drops(filled: Desk) -> None:
    filled.run("prepare", "--scrub", "--gold", "2", "--red", "2")
    assert stat.S_IMODE(side_file(filled).stat().st_mode) == 0o600
    (held,) = (json.loads(line) for line in side_file(filled).read_text(encoding="utf-8").splitlines())
    assert (held["source"], held["line"], held["reasons"]) == ("a", 62, ["a name"])
    assert held["conversation"]["messages"][0]["content"] == DOUBTFUL
    assert {"source": "a", "line": 62, "reason": "phi"} in filled.records("dropped.jsonl")


def test_without_scrubbing_the_card_says_so_and_an_old_side_file_goes(filled: Desk) -> None:
    filled.run("prepare", "--scrub", "--gold", "2", "--red", "2")
    result = filled.run("prepare", "--no-scrub", "--gold", "2", "--red", "2")
    assert "were not removed" in result.out and not side_file(filled).exists()
    assert "王芳" in everything(filled) and "not looked for" in filled.run("card").out


def test_it_scrubs_unless_told_otherwise(filled: Desk) -> None:
    done = CliRunner().invoke(app, ["--home", str(filled.home), "data", "prepare", "--gold", "2", "--red", "2"])
    assert done.exit_code == 0 and "王芳" not in everything(filled)


def test_a_run_that_fails_leaves_data_and_side_file_as_they_were(filled: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.run("prepare", "--scrub", "--gold", "2", "--red", "2")
    before = everything(filled), side_file(filled).read_bytes()
    filled.import_rows("b", [{"question": DOUBTFUL, "answer": "Rest."}] * 3)
    monkeypatch.setattr(stage, "check_files", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        filled.run("prepare", "--scrub", "--gold", "2", "--red", "2")
    assert (everything(filled), side_file(filled).read_bytes()) == before
    assert not [path.name for path in (filled.home / "data").iterdir() if path.name.startswith(".")]


class Killed(BaseException):
    """What a kill is to the lines after it."""


@pytest.mark.parametrize("doubt", [True, False])
def test_a_kill_before_the_dataset_is_in_place_leaves_a_side_file_for_whichever_is_there(
    filled: Desk, monkeypatch: pytest.MonkeyPatch, doubt: bool
) -> None:
    """With a row in doubt the new file is there; without one the file of the old dataset still is."""
    filled.run("prepare", "--scrub", "--gold", "2", "--red", "2")
    before = side_file(filled).read_bytes()
    if doubt:
        side_file(filled).unlink()
    else:
        monkeypatch.setattr(scrub.Scrubber, "assess", lambda self, text: Assessment(text, (), 0.0, ()))
    with monkeypatch.context() as patch:
        patch.setattr(artifacts, "_publish", killed)
        with pytest.raises(Killed):
            filled.run("prepare", "--scrub", "--gold", "2", "--red", "2")
    assert side_file(filled).read_bytes() == before
    filled.run("prepare", "--scrub", "--gold", "2", "--red", "2")
    assert side_file(filled).exists() == doubt


def killed(*args: Any) -> None:
    raise Killed
