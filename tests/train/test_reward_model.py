"""The reward model: what it learns, what it leaves, what it refuses; killed and started again it ends the same."""

import json
import os
import random
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from medloop.contracts import TrainingCard
from medloop.embedded.pairs import generate_pairs
from medloop.errors import ConfigError, InputError, IntegrityError
from medloop.knobs import load_config
from medloop.loop.train import STAGES, run_stage
from medloop.models.classify import open_classifier
from medloop.models.preference_model import open_preference_model
from medloop.settings import Settings
from medloop.store.files.artifacts import file_sha256, verify_artifact
from medloop.testing.models import tiny_encoder
from medloop.train import reward_model
from medloop.train.examples.pairs import read_pairs, split_by_prompt
from medloop.train.reward_model import RewardModelConfig, make_plan
from medloop.train.runs.find_run import find_run
from medloop.train.trl import reward_trainer
from medloop.train.trl.fast_path import FastPath

ROOT = Path(__file__).parents[2]
FILES = {
    "MANIFEST.json", "README.md", "card.json", "chat_template.jinja", "metrics.jsonl", "report.json", "report.md", "report.png",
    "scoring.json", "tokenizer.json", "tokenizer_config.json",
}  # fmt: skip


def lines(count: int) -> list[dict]:
    """The better answer is the one in capitals, longer or shorter as it comes; each prompt has two pairs."""
    rng = random.Random(0)
    rows = []
    for n in range(count):
        good, bad = ("REST. " * rng.randint(1, 4), "rest. " * rng.randint(1, 4))
        rows.append({"prompt": f"Case {n // 2}: what now?", "chosen": good, "rejected": bad, "metadata": {"by": "us"}})
    return rows


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def preferences(settings: Settings) -> Path:
    return write(settings.home / "data/preferences/preferences.jsonl", lines(60))


def config(settings: Settings, **more) -> RewardModelConfig:
    given = {"model": settings.model, "batch_size": 8, "learning_rate": 0.02, "save_every": 2, "max_length": 128, "epochs": 2}
    return RewardModelConfig(**{**given, **more})


def train_reward(config, *, settings, replace=False) -> TrainingCard:
    return run_stage(STAGES["REWARD"], config, settings, replace=replace).card


def report(settings: Settings, name: str = "reward") -> dict:
    return json.loads((settings.home / f"models/reward/{name}/report.json").read_text())


@pytest.fixture(scope="module")
def first_run(new_workspace, tmp_path_factory) -> tuple[Settings, TrainingCard]:
    """The plain run, made once."""
    settings = new_workspace(tmp_path_factory.mktemp("first") / "clinic")
    write(settings.home / "data/preferences/preferences.jsonl", lines(60))
    return settings, train_reward(config(settings), settings=settings)


def test_it_learns_and_says_so_beside_the_baselines(first_run):
    settings, card = first_run
    metrics = report(settings)
    assert card.method == "reward" and card.metrics["test_accuracy"] >= 0.9 <= card.metrics["train_accuracy"]
    assert metrics["test"]["low"] > 0.5 and metrics["test"]["n"] == 12 and metrics["test_questions"] == 6
    assert metrics["baselines"]["bag_of_words"]["value"] == pytest.approx(0.5), "small and capital letters are one word to it"
    assert metrics["baselines"]["longer"]["value"] + metrics["baselines"]["shorter"]["value"] == pytest.approx(1)
    assert "better than chance" in (settings.home / "models/reward/reward/report.md").read_text()
    logged = [json.loads(line) for line in (settings.home / "models/reward/reward/metrics.jsonl").read_text().splitlines()]
    assert [row["iter"] for row in logged if row["phase"] == "METRICS"] == [0, 6, 12]


def test_the_result_is_whole_and_holds_no_pickle(first_run, preferences):
    settings, card = first_run
    folder = settings.home / "models/reward/reward"
    verify_artifact(folder)
    assert {file.name for file in folder.iterdir()} == FILES | {
        "adapter_config.json",
        "adapter_model.safetensors",
        "heads.safetensors",
    }
    assert TrainingCard.from_json((folder / "card.json").read_text()) == card
    assert card.inputs == {"pairs": file_sha256(preferences)}
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")
    assert not (settings.home / "jobs/train_reward-reward/checkpoints").exists()


@pytest.mark.parametrize("kind", ["lora", "full", "encoder", "encoder full", "encoder frozen"])
def test_opened_again_it_judges_the_held_out_pairs_as_reported(settings, preferences, tmp_path: Path, kind: str):
    more = {"model": str(tiny_encoder(tmp_path / "bert"))} if "encoder" in kind else {}
    more |= {"encoder": "frozen"} if "frozen" in kind else {}
    run_config = config(settings, full="full" in kind, **more)
    train_reward(run_config, settings=settings)
    model, scoring = open_preference_model(settings.home / "models/reward/reward", settings)
    held_out = split_by_prompt(read_pairs(preferences), run_config.test_share, run_config.seed)[1]
    chosen, rejected = (model.judge_all([(p.prompt, getattr(p, side)) for p in held_out]) for side in ("chosen", "rejected"))
    margins = chosen.lowered - rejected.lowered
    trained = TrainingCard.model_validate_json((settings.home / "models/reward/reward/card.json").read_text())
    assert trained.update_backend == {"lora": "fast", "encoder frozen": None}.get(kind, "library")
    assert ("times slower" in (trained.update_note or "")) == (trained.update_backend == "library")
    assert margins.mean() == pytest.approx(report(settings)["margins"]["mean"], abs=1e-4)
    assert margins.mean() > 0.5 and scoring.base_sha256.startswith("sha256:")
    assert "training pairs" in scoring.reference and "no reference model" in scoring.reference


def test_the_score_is_centred_on_what_the_reference_says(settings, first_run, preferences):
    train_reward(config(settings, reference=settings.model, reference_samples=10, reference_tokens=8), settings=settings)
    folder = settings.home / "models/reward/reward"
    _, scoring = open_classifier(folder, settings)
    assert scoring.samples == 10 and settings.model in scoring.reference
    card = TrainingCard.from_json((folder / "card.json").read_text())
    assert card.inputs["reference"] == card.base_sha256 and card.metrics["score_mean"] == scoring.mean
    _, other = open_classifier(first_run[0].home / "models/reward/reward", first_run[0])
    assert other.mean != scoring.mean and other.max_length == scoring.max_length


def test_no_prompt_is_on_both_sides_and_the_split_does_not_move(settings, preferences):
    pairs = read_pairs(preferences)
    train, test = split_by_prompt(pairs, 0.3, 1)
    assert not {p.prompt for p in train} & {p.prompt for p in test} and len(test) == 18 and len(train) == 42
    assert split_by_prompt(pairs[::-1], 0.3, 1)[1][::-1] == test
    assert split_by_prompt(pairs, 0.3, 2)[1] != test


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": "q", "chosen": "secret", "rejected": " secret"}, "line 3: chosen and rejected are the same text"),
        ({"prompt": "q", "chosen": "secret"}, "line 3: rejected is missing"),
        ({"chosen": "secret", "rejected": "b"}, "line 3: has none of prompt, question, messages"),
        ({"prompt": "q", "chosen": "secret", "rejected": ""}, "line 3: rejected should be a text"),
        ({"prompt": [{"role": "assistant", "content": "secret"}], "chosen": "a", "rejected": "b"}, "line 3: .*expected user"),
        (
            {"prompt": "q", "response_a": "secret", "response_b": "b", "preferred": "c"},
            "line 3: preferred should be a, b, tie or both_bad",
        ),
    ],
)
def test_a_bad_pair_is_named_with_its_line_and_nothing_is_written(settings, bad: dict, message: str):
    path = write(settings.home / "bad.jsonl", [*lines(2), bad, *lines(2)])
    before = path.read_bytes()
    with pytest.raises(InputError, match=message) as caught:
        train_reward(config(settings, data=str(path)), settings=settings)
    assert "secret" not in str(caught.value) and path.read_bytes() == before
    assert not [path for path in settings.home.glob("[jm]o*/**/*") if path.is_file()], "no job, no model"


def test_the_shapes_of_a_pair_are_the_same_pair(settings):
    turns = [{"role": "user", "content": "q"}]
    shapes = [
        {"prompt": "q", "chosen": "a", "rejected": "b"},
        {"question": "q", "chosen": "a", "rejected": "b", "id": 7},
        {"messages": turns, "chosen": [{"role": "assistant", "content": "a"}], "rejected": "b"},
        {"prompt": "q", "response_a": "b", "response_b": "a", "preferred": "b"},
    ]
    assert len(set(read_pairs(write(settings.home / "shapes.jsonl", shapes)))) == 1


def test_too_long_answers_are_left_out_and_counted_and_too_few_pairs_are_refused(settings):
    rows = [*lines(20), {"prompt": "long", "chosen": "a" * 300, "rejected": "b"}]
    path = write(settings.home / "some.jsonl", rows)
    run_config = config(settings, data=str(path))
    plan = make_plan(run_config, settings, find_run(run_config, settings))
    assert plan.train.too_long + plan.test.too_long == 1 and len(plan.train.items) + len(plan.test.items) == 20
    single = config(settings, data=str(write(settings.home / "one.jsonl", lines(1))))
    with pytest.raises(InputError, match="1 pairs to train on and 0 held out"):
        train_reward(single, settings=settings)
    with pytest.raises(ConfigError, match="reads 512 tokens"):
        train_reward(config(settings, data=str(path), max_length=1024), settings=settings)


def test_a_finished_run_is_not_repeated_another_is_refused_a_damaged_one_named(settings, first_run):
    shutil.copytree(first_run[0].home, settings.home, dirs_exist_ok=True)
    assert train_reward(config(settings), settings=settings) == first_run[1]
    with pytest.raises(ConfigError, match=r"another run \(lora_r 8, now 4\).*--replace"):
        train_reward(config(settings, lora_r=4), settings=settings)
    file = settings.home / "models/reward/reward/scoring.json"
    file.write_text(file.read_text().replace('"mean":', '"mean":1'))
    with pytest.raises(IntegrityError, match=r"scoring\.json"):
        train_reward(config(settings), settings=settings)
    with pytest.raises(IntegrityError, match=r"scoring\.json"):
        open_classifier(settings.home / "models/reward/reward", settings)


def test_a_run_that_ended_before_its_card_still_names_what_computed_its_updates(settings, preferences, monkeypatch):
    with monkeypatch.context() as ended_early, pytest.raises(ZeroDivisionError):
        ended_early.setattr(reward_model, "training_card", lambda *_, **__: 1 / 0)
        train_reward(config(settings), settings=settings)
    again = train_reward(config(settings), settings=settings)
    assert again.update_backend == "fast" and again.update_note is None
    ours = losses(settings.home / "models/reward/reward")
    monkeypatch.setattr(reward_trainer, "open_fast_path", lambda *_: FastPath("The reward model", reason="so"))
    assert train_reward(config(settings, name="theirs"), settings=settings).update_backend == "library"
    assert len(ours) > 5 and ours == pytest.approx(
        losses(settings.home / "models/reward/theirs"), rel=1e-3
    )  # whatever was learnt


def losses(model: Path) -> list[float]:
    lines = map(json.loads, (model / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if line["phase"] == "TRAINING"]


def train_in_child(settings: Settings, die_at: int | None = None, die_in: str | None = None) -> None:
    """Train in this process; by kill -9 it ends when `die_at` steps were logged, or inside the call named `die_in`."""

    def die(*_, **__) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if die_in is not None:
        module, _, call = die_in.rpartition(".")
        setattr(__import__(module, fromlist=["x"]), call, die)
    run_config = config(settings)
    run_stage(STAGES["REWARD"], run_config, settings, on_progress=lambda progress: die() if progress.step == die_at else None)


def start(children, *args) -> int:
    child = children.Process(target=train_in_child, args=args)
    child.start()
    child.join()
    return child.exitcode


def outcome(settings: Settings) -> dict[str, str]:
    """Everything but the times: weights, centring, report, page, picture."""
    names = ("adapter_model.safetensors", "heads.safetensors", "scoring.json", "report.json", "report.md", "report.png")
    return {name: file_sha256(settings.home / "models/reward/reward" / name) for name in names}


@pytest.mark.slow
def test_killed_at_any_point_it_ends_with_the_same_bytes(settings, preferences, children, untouched):
    write(untouched.home / "data/preferences/preferences.jsonl", lines(60))
    assert start(children, untouched) == 0
    for step in (3, 8):
        assert start(children, settings, step) == -signal.SIGKILL
    for place in ("medloop.train.reports.reward_report.measure", "medloop.train.runs.publish.obey_umask"):
        assert start(children, settings, None, place) == -signal.SIGKILL
    assert not (settings.home / "models/reward/reward").exists()
    assert start(children, settings) == 0
    assert outcome(settings) == outcome(untouched)


def test_the_run_file_opens_with_its_command_and_holds_every_setting():
    text = (ROOT / "configs/reward_model.yaml").read_text()
    assert text.startswith("# medloop train reward --config configs/reward_model.yaml\n")
    assert set(yaml.safe_load(text)) == set(RewardModelConfig.model_fields)
    assert (
        load_config(RewardModelConfig, file=ROOT / "configs/reward_model.yaml", pairs=(), flags={}, defaults={})
        == RewardModelConfig()
    )


def test_every_setting_says_what_it_is_here_and_on_its_page():
    page = (ROOT / "docs/stages/reward_model.md").read_text()
    for name, field in RewardModelConfig.model_fields.items():
        assert field.description and field.description.endswith(".") and f"`{name}`" in page, name


@pytest.mark.slow
def test_on_made_up_pairs_the_embedded_model_is_right_nine_times_in_ten(settings):
    """As benchmarks/reward_model.py does it; some minutes."""
    path = write(settings.home / "made_up.jsonl", list(generate_pairs(2000, seed=1)))
    run_config = RewardModelConfig(name="made-up", model="embedded:tiny", full=True, data=str(path), test_share=0.25, epochs=2)
    metrics = train_reward(run_config, settings=settings).metrics
    assert metrics["test_accuracy"] >= 0.9 and 0.45 < metrics["baseline_longer"] < 0.55
