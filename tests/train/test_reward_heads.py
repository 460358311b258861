"""The ensemble of a reward model: it beats the bag of words where order counts, doubts what it does not know, and says so."""

import json
import re
import sys
from pathlib import Path

import pytest

from medloop.cli import main
from medloop.contracts import Sample
from medloop.embedded.pairs import generate_pairs
from medloop.loop.workspace import init_workspace
from medloop.reward.mix import MixConfig, MixPart, build_mix
from medloop.reward.model import RewardModel, load_reward_model
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.reports.reward_report import markdown, summary


def medloop(monkeypatch: pytest.MonkeyPatch, settings: Settings, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["medloop", "--home", str(settings.home), *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("heads") / "clinic"
    init_workspace(home)
    jsonl.write(home / "data/preferences/preferences.jsonl", list(generate_pairs(400, seed=3, language="en")))
    return Settings(home=home, device="cpu", threads=1, offline=True)


@pytest.fixture(scope="module")
def output(clinic: Settings) -> str:
    """What `medloop train reward` says when it trains heads alone."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        lines: list[str] = []
        monkeypatch.setattr("medloop.cli.ui.say", lambda text="", **_: lines.append(str(text)))
        assert medloop(monkeypatch, clinic, "train", "reward", "--name", "heads", "--encoder", "none", "--ensemble", "6") == 0
        return "\n".join(lines)


@pytest.fixture(scope="module")
def model(clinic: Settings, output: str) -> RewardModel:
    return load_reward_model("heads", clinic)


def test_heads_alone_take_no_base_and_say_what_they_are_worth(clinic: Settings, output: str):
    for part in (
        "Heads only, without a base model",
        "6 heads on resampled questions",
        "caution 1",
        " synthetic negatives (25%)",
    ):
        assert part in output
    report = json.loads((clinic.home / "models/reward/heads/report.json").read_text())
    assert report["test"]["value"] > report["baselines"]["longer"]["value"] and report["test"]["low"] > 0.5
    assert report["length_matched"]["model"]["n"] and len(report["uncertainty"]["thirds"]) == 3
    names = {path.name for path in (clinic.home / "models/reward/heads").iterdir()}
    assert "heads.safetensors" in names and not {"adapter_model.safetensors", "model.safetensors", "tokenizer.json"} & names


def test_text_unlike_the_training_answers_earns_less(clinic: Settings, model: RewardModel):
    """For every held-out question: its better answer beats nonsense, another language and endless repetition."""
    rows = list(generate_pairs(40, seed=99, language="en"))
    nonsense = "Livestock fibre zorp glim short plinth quaff urge wibble narrow osmium daffodil crank seven plan under."
    others = (
        nonsense,
        "孩子发烧三天了，多喝水，注意休息，超过三十八度五要去医院。",
        "rest " * 60,
        "qwe asdf zxcv poiu mnbv lkjh gfds",
    )
    wins = [
        model.judge(row["prompt"], row["chosen"])[0] > model.judge(row["prompt"], other)[0] for row in rows for other in others
    ]
    assert sum(wins) / len(wins) >= 0.98
    samples = [Sample(id="s", question=row["prompt"], answer=answer) for row in rows for answer in (row["chosen"], *others)]
    distances = [result.distance for result in model.judgements(samples)]
    far = [[distance > 0 for distance in distances[start::5]] for start in range(5)]
    assert all(map(all, far[1:])) and sum(far[0]) <= 0.15 * len(rows), "strange texts are far, answers are not"


def test_the_spread_is_larger_and_the_reason_says_so_where_it_does_not_know(model: RewardModel):
    row = next(iter(generate_pairs(1, seed=99, language="en")))
    known, unknown = (model.judge(row["prompt"], answer) for answer in (row["chosen"], "zorp glim wibble plinth quaff osmium"))
    assert known is not None and unknown is not None and unknown[0] < known[0] and 0 < known[1] < 1
    reason = model.score([Sample(id="s", question=row["prompt"], answer="zorp glim wibble plinth quaff osmium")])[0].reason
    assert re.search(r"lowered by \d+\.\d\d for a spread of \d+\.\d\d and distance \d\.\d", reason)
    assert model.judge(row["prompt"], "  ") is None


def test_caution_zero_lowers_nothing(clinic: Settings, model: RewardModel, monkeypatch: pytest.MonkeyPatch):
    words = ("train", "reward", "--name", "bold", "--encoder", "none", "--set", "caution=0", "--set", "hard_negatives=0")
    assert medloop(monkeypatch, clinic, *words) == 0
    bold = load_reward_model("bold", clinic)
    question, answer = "I have a sore throat.", "zorp glim wibble plinth quaff osmium"
    assert bold.judge(question, answer)[0] > model.judge(question, answer)[0]
    reasons = [judge.score([Sample(id="s", question=question, answer=answer)])[0].reason for judge in (bold, model)]
    assert "lowered" not in reasons[0] and "lowered" in reasons[1]


def test_the_same_command_gives_the_same_heads(clinic: Settings, output: str, monkeypatch: pytest.MonkeyPatch):
    folder = clinic.home / "models/reward/heads"
    before = {name: (folder / name).read_bytes() for name in ("heads.safetensors", "scoring.json", "report.json")}
    words = ("train", "reward", "--name", "heads", "--encoder", "none", "--ensemble", "6", "--replace")
    assert medloop(monkeypatch, clinic, *words) == 0
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_pairs_of_several_files_are_counted_and_split_together(clinic: Settings, monkeypatch, capsys, tmp_path: Path):
    more = tmp_path / "teacher.jsonl"
    jsonl.write(more, list(generate_pairs(60, seed=7, language="en")))
    words = ("train", "reward", "--name", "both", "--encoder", "none", "--extra-data", str(more))
    assert medloop(monkeypatch, clinic, *words) == 0
    assert "Pairs by file: preferences.jsonl 400, teacher.jsonl 60." in capsys.readouterr().out
    report = json.loads((clinic.home / "models/reward/both/report.json").read_text())
    assert report["sources"] == {"preferences.jsonl": 400, "teacher.jsonl": 60}
    assert medloop(monkeypatch, clinic, *words[:-1], str(tmp_path / "none.jsonl")) == 3


def test_a_model_worse_than_a_baseline_says_so_first_and_in_every_run_that_uses_it(clinic: Settings, monkeypatch, capsys):
    """Labels by chance: nothing can be learnt."""
    rows = [{"prompt": f"Case {n}?", "chosen": f"Answer {n * 7 % 13}", "rejected": f"Reply {n * 5 % 11}"} for n in range(40)]
    for n, row in enumerate(rows):
        if n % 2:
            row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    jsonl.write(clinic.home / "chance.jsonl", rows)
    words = ("train", "reward", "--name", "chance", "--encoder", "none", "--data", str(clinic.home / "chance.jsonl"))
    assert medloop(monkeypatch, clinic, *words) == 0
    output = capsys.readouterr().out
    assert output.index("WARNING: Not significantly better than chance") < output.index("model, held-out")
    assert "Not significantly better than chance" in (clinic.home / "models/reward/chance/README.md").read_text().split("|")[0]
    notes = load_reward_model("chance", clinic).notes
    assert notes and notes[0].startswith("Reward model chance: Not significantly better than chance")
    part = {"model": load_reward_model("chance", clinic)}
    mix = build_mix(MixConfig(parts={"model": MixPart(weight=1.0, given=True)}), given=part)
    assert mix.objective.notes == notes, "which train ppo, grpo and irs print"


def test_a_model_that_prefers_broken_copies_says_so_first(clinic: Settings, output: str):
    """As happens where people like short answers: a truncated one then looks better than the whole one."""
    report = json.loads((clinic.home / "models/reward/heads/report.json").read_text())
    assert not any("broken copies" in line for line in summary(report))
    report["hard_negatives"]["held_out"]["truncated"] = {"value": 0.1, "low": 0.05, "high": 0.2, "n": 40}
    assert summary(report)[0].startswith(
        "WARNING: It scores broken copies of held-out answers above the answers themselves: truncated (90%)"
    )
    assert "broken copies" in markdown(report, "heads", "none", "training answers").split("| chosen by")[0]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"ensemble": "1"}, "a spread needs at least 2 heads"),
        ({"ensemble": "0", "encoder": "none"}, "nothing would be trained"),
        ({"encoder": "frozen", "full": "true"}, "full trains all weights of the base, but encoder is frozen"),
    ],
)
def test_settings_that_cannot_work_are_refused(clinic: Settings, monkeypatch, capsys, pairs: dict[str, str], message: str):
    sets = [word for name, value in pairs.items() for word in ("--set", f"{name}={value}")]
    assert medloop(monkeypatch, clinic, "train", "reward", "--name", "x", *sets) == 2
    assert message in capsys.readouterr().err
