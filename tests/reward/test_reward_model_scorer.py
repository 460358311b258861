"""The reward model as a scorer: centred, the same in any company, missing where it cannot read, refused when changed."""

import json
import math
import random
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Component, Missing, Sample, Score
from medloop.errors import IntegrityError, ModelError
from medloop.loop.train import STAGES, run_stage
from medloop.loop.workspace import init_workspace
from medloop.models.classify import Classifier
from medloop.models.preference_model import JudgedAnswer
from medloop.reward.mix import MixConfig, MixPart, build_mix
from medloop.reward.model import RewardModel, load_reward_model
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.testing.models import tiny_model
from medloop.train.reward_model import RewardModelConfig


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A workspace with a reward model that likes capital letters."""
    place, rng = tmp_path_factory.mktemp("rewards"), random.Random(0)
    base = tiny_model(place / "base")
    init_workspace(place / "clinic")
    settings = Settings(home=place / "clinic", device="cpu", threads=1, offline=True)
    rows = [
        {"prompt": f"Case {n}: what now?", "chosen": "REST. " * rng.randint(1, 4), "rejected": "rest. " * rng.randint(1, 4)}
        for n in range(60)
    ]
    (settings.workspace.preferences / "preferences.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_config = RewardModelConfig(name="caps", model=str(base), epochs=2, batch_size=8, learning_rate=0.02, max_length=128)
    run_stage(STAGES["REWARD"], run_config, settings)
    return settings


@pytest.fixture(scope="module")
def model(settings: Settings) -> RewardModel:
    return load_reward_model("caps", settings)


def sample(answer: str | None, question: str = "Case 7: what now?", **more) -> Sample:
    return Sample(id="s", question=question, answer=answer, **more)


def test_it_is_a_component_and_prefers_what_people_preferred(model: RewardModel):
    component: Component = model
    assert (component.name, component.penalty) == ("model", False) and component.version.startswith("model-")
    good, bad = component.score([sample("REST. REST."), sample("rest. rest.")])
    assert isinstance(good, Score) and isinstance(bad, Score) and good.value > 0.6 > 0.4 > bad.value
    assert good.author == "reward model:caps" and "above the reference mean" in good.reason and "below" in bad.reason


def test_scores_are_centred_on_the_reference(model: RewardModel):
    mean = JudgedAnswer(model.scoring.mean, 0.0, 0.0, model.scoring.mean)
    score, above = model._score(mean), model._score(mean._replace(lowered=model.scoring.mean + model.scoring.std))
    assert score.value == 0.5 and above.value == pytest.approx(1 / (1 + math.exp(-1)))


def test_a_score_is_the_same_alone_and_in_company(model: RewardModel):
    answers = ["Rest.", "REST and drink. " * 3, "call 120", "DRINK WATER AND REST"]
    alone = [model.score([sample(answer)])[0].value for answer in answers]
    assert [score.value for score in model.score([sample(a) for a in answers])] == pytest.approx(alone, abs=1e-5)
    assert len(set(alone)) == 4


def test_what_cannot_be_read_is_missing_in_its_place_and_never_zero(model: RewardModel):
    samples = [sample("REST."), sample(None, why_missing="timeout"), sample("  "), sample("a" * 500), sample("ok", question=" ")]
    scores = model.score(samples)
    assert isinstance(scores[0], Score) and [type(part) for part in scores[1:]] == [Missing] * 4
    reasons = [part.reason for part in scores[1:]]
    assert reasons[:2] == ["timeout", "the answer is empty"] and "no room" in reasons[2] and "question is empty" in reasons[3]
    assert model.score([]) == []


def test_a_long_question_loses_its_beginning_and_the_reason_says_so(model: RewardModel):
    score = model.score([sample("REST.", question="old " * 60 + "what now?")])[0]
    assert isinstance(score, Score) and "tokens of the question were truncated" in score.reason


def test_an_output_that_is_no_number_is_missing(model: RewardModel, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Classifier, "logits", lambda self, rows, **_: [math.nan] * len(rows))
    assert model.score([sample("REST.")])[0] == Missing(
        name="model", reason="the model's output is not a number", author="reward model:caps", version=model.version
    )


def test_it_takes_its_place_in_the_mix(model: RewardModel):
    mix = build_mix(MixConfig(parts={"model": MixPart(weight=1.0, given=True)}), given={"model": model})
    good, bad = mix.score([sample("REST. REST."), sample("rest. rest.")])
    assert good.value > bad.value and good.parts[0].version == model.version


def test_another_centring_or_base_is_another_version(settings: Settings, model: RewardModel):
    base = json.loads((settings.workspace.models / "reward/caps/card.json").read_text())["base"]
    less = RewardModelConfig(name="less", model=base, max_steps=2, batch_size=8, max_length=128)
    run_stage(STAGES["REWARD"], less, settings)
    assert load_reward_model(Path("models/reward/less"), settings).version != model.version
    assert load_reward_model(settings.workspace.models / "reward/caps", settings).version == model.version


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "scoring.json", "tokenizer.json", "card.json"])
def test_a_changed_file_refuses_the_model(settings: Settings, tmp_path: Path, name: str):
    folder = Path(shutil.copytree(settings.workspace.models / "reward/caps", tmp_path / "copy"))
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    with pytest.raises(IntegrityError, match=name):
        load_reward_model(folder, settings)


def test_no_such_model_is_one_sentence_that_says_how_to_make_one(settings: Settings):
    with pytest.raises(ModelError, match=r"no reward model .*models/reward/none\. Train one with: medloop train reward"):
        load_reward_model("none", settings)


def test_an_adapter_is_not_put_on_another_base(settings: Settings, tmp_path: Path):
    base = Path(json.loads((settings.workspace.models / "reward/caps/card.json").read_text())["base"])
    moved = shutil.move(base, tmp_path / "kept")
    try:
        tiny_model(base, seed=5)
        with pytest.raises(ModelError, match="was trained on"):
            load_reward_model("caps", settings)
    finally:
        shutil.rmtree(base)
        shutil.move(moved, base)


def test_the_trust_meter_measures_it_alone_and_counts_labels_that_it_cannot_judge(settings: Settings, tmp_path: Path):
    rows = [
        {"id": f"p{n}", "question": f"Case {n}: what now?", "chosen": "REST. REST.", "rejected": "rest. rest."} for n in range(24)
    ]
    rows += [{"id": "f", "question": "Case 7: what now?", "answer": "rest.", "faults": {"risk": True}}]
    jsonl.write(tmp_path / "cases.jsonl", rows)
    command = ["--home", str(settings.home), "reward", "validate", str(tmp_path / "cases.jsonl"), "--reward-model", "caps"]
    done = CliRunner().invoke(app, command)
    assert (
        "reward: trusted (agreement 1.00" in done.output
        and "1 labels of risky advice, which this reward does not look for" in done.output
    )
    (card,) = (settings.home / "reports/trust").glob("model+*/validity.json")
    assert json.loads(card.read_text())["kind"] == "reward model"
