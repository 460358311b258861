"""`medloop reward fit`: weights from labels, measured on held-out questions, with safety floors; through the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Score
from medloop.errors import InputError
from medloop.knobs import load_config
from medloop.loop.workspace import init_workspace
from medloop.reward.mix import MixConfig, build_mix
from medloop.store.files import jsonl


class Word:
    """1 for an answer with its word."""

    version, penalty = "1", False

    def __init__(self, name: str = "useful", penalty: bool = False) -> None:
        self.name, self.penalty = name, penalty

    def score(self, question: str, answer: str) -> Score:
        value = 0.4 * (self.name in answer) if self.penalty else float(self.name in answer)
        return Score(name=self.name, value=value, reason="a word", author="test", version=self.version)


useful, polite, risk = Word("useful"), Word("polite"), Word("risk", penalty=True)
CONFIG = """
parts:
  polite: {weight: 0.4, rule: "test_fit:polite"}
  useful: {weight: 0.1, rule: "test_fit:useful"}
  risk: {weight: -0.2, rule: "test_fit:risk"}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    init_workspace(tmp_path / "ws")
    monkeypatch.chdir(tmp_path / "ws")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    (tmp_path / "ws/base.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path / "ws"


def pairs(chosen: str, rejected: str, *, questions: int = 30) -> list[dict[str, Any]]:
    """Three pairs on each question."""
    return [
        {"id": f"{chosen}{q}-{n}", "question": f"question {q}", "chosen": f"a {chosen} answer {n}", "rejected": f"a {rejected} one {n}"}
        for q in range(questions) for n in range(3)
    ]  # fmt: skip


def fit(home: Path, rows: list[dict[str, Any]], *more: str) -> str:
    jsonl.write(home / "cases.jsonl", rows)
    done = CliRunner().invoke(app, ["reward", "fit", "cases.jsonl", "--config", "base.yaml", "--out", "reward.yaml", *more])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def weights(home: Path) -> dict[str, float]:
    return {name: part.weight for name, part in load_config(MixConfig, file=home / "reward.yaml", flags={}).parts.items()}


def test_the_weights_move_to_what_people_prefer_and_held_out_agreement_says_so(home: Path) -> None:
    out = fit(home, pairs("useful", "polite"))
    assert "90 pairs on 30 questions" in out and "The new weights agree more." in out
    assert "before: 0.000 [0.000, 0.000], 0 ties" in out and "now:    1.000 [1.000, 1.000], 0 ties" in out
    assert weights(home)["useful"] > weights(home)["polite"] >= 0


def test_the_file_is_a_complete_reward_with_its_origin_another_version_and_the_same_bytes_again(home: Path) -> None:
    fit(home, pairs("useful", "polite"))
    text = (home / "reward.yaml").read_text(encoding="utf-8")
    before, after = (build_mix(load_config(MixConfig, file=home / name, flags={})) for name in ("base.yaml", "reward.yaml"))
    assert before.version in text and after.version != before.version and "-fit-" in after.version
    assert "90 pairs on 30 questions" in text and "cases: 90 cases" in text and "# was 0.4" in text
    jsonl.write(home / "answers.jsonl", [{"id": "1", "question": "q", "answer": "a useful answer"}])
    assert CliRunner().invoke(app, ["reward", "score", "answers.jsonl", "--config", "reward.yaml"]).exit_code == 0
    fit(home, pairs("useful", "polite"))
    assert (home / "reward.yaml").read_text(encoding="utf-8") == text


def test_labels_that_prefer_risky_answers_cannot_lower_the_safety_floor(home: Path) -> None:
    out = fit(home, pairs("useful risk", "useful polite"))
    assert weights(home)["risk"] == -0.15 and "risk: at its safety floor" in out
    assert load_config(MixConfig, file=home / "reward.yaml", flags={}).parts["risk"].gate


def test_labelled_faults_raise_the_weight_of_the_part_that_sees_them(home: Path) -> None:
    faults = [
        {"id": f"f{n}", "question": f"q{n}", "answer": "a risk" if n % 2 else "safe", "faults": {"risk": bool(n % 2)}} for n in range(200)
    ]  # fmt: skip
    out = fit(home, [*pairs("useful", "polite"), *faults])
    assert "200 labelled answers" in out and weights(home)["risk"] < -0.2


def test_too_few_labels_are_refused_and_nothing_is_written(home: Path) -> None:
    with pytest.raises(InputError, match="12 pairs on 4 questions, at least 60 pairs on 20 questions are needed"):
        fit(home, pairs("useful", "polite", questions=4))
    assert not (home / "reward.yaml").exists()


def test_a_reward_file_that_somebody_wrote_is_not_replaced(home: Path) -> None:
    (home / "reward.yaml").write_text("version: mine\n", encoding="utf-8")
    with pytest.raises(InputError, match="was not written by 'reward fit'"):
        fit(home, pairs("useful", "polite"))
    assert (home / "reward.yaml").read_text(encoding="utf-8") == "version: mine\n"


def test_parts_that_no_label_speaks_about_keep_their_weight(home: Path) -> None:
    result = json.loads(fit(home, pairs("useful", "polite"), "--json"))
    assert result["unchanged"] == {"risk": "no label separates two of its values"} and weights(home)["risk"] == -0.2


def test_pairs_that_the_gates_decide_are_named_and_fit_nothing(home: Path) -> None:
    (home / "base.yaml").write_text(CONFIG.replace("weight: -0.2,", "weight: -0.2, gate: true,"), encoding="utf-8")
    with pytest.raises(InputError, match="gates decide 90 of the 90 pairs, and no weight changes that"):
        fit(home, pairs("useful", "useful risk"))
    few = [*pairs("useful", "useful risk"), *pairs("polite useful", "polite", questions=1)]
    with pytest.raises(InputError, match="gates decide 90 of the 93 pairs"):
        fit(home, few)
    assert not (home / "reward.yaml").exists()
