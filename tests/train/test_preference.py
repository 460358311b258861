"""DPO and KTO: what they learn and from where, that the reference stays what it was, and that a killed run ends the same."""

import json
import math
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from medloop.cli import main
from medloop.contracts import Message, ModelRef, TrainingCard
from medloop.errors import ConfigError, InputError
from medloop.knobs import load_config
from medloop.loop.train import STAGES, run_stage
from medloop.models.load import load
from medloop.models.rollout.decode import FastDecoder
from medloop.models.template import encode_example, encode_prompt
from medloop.settings import Settings
from medloop.store.files.artifacts import file_sha256, verify_artifact
from medloop.testing.models import tiny_model
from medloop.train import preference
from medloop.train.configs.preference_config import DPOConfig, KTOConfig
from medloop.train.examples.pairs import Pair
from medloop.train.preference import balance, make_plan
from medloop.train.reports.preference_report import AnswerLogprobs, report_pairs, roc_auc
from medloop.train.runs.checkpoint import load_newest
from medloop.train.runs.find_run import find_run
from medloop.train.sft import SFTConfig
from medloop.train.trl import preference_trainer
from medloop.train.trl.fast_path import FastPath

ROOT = Path(__file__).parents[2]
TIMES = ("ts", "tokens_per_second")
KINDS = pytest.mark.parametrize("kind", [DPOConfig, KTOConfig])


def lines(count: int) -> list[dict]:
    """The better answer is the one in capitals, longer or shorter as it comes; each prompt has two pairs."""
    rng = random.Random(0)
    return [
        {"prompt": f"Case {n // 2}: what now?", "chosen": "REST. " * rng.randint(1, 4), "rejected": "rest. " * rng.randint(1, 4)}
        for n in range(count)
    ]


def write(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def prepare(settings: Settings, taught: Path) -> None:
    """Pairs, and a copy of the adapter to start from."""
    write(settings.home / "data/preferences/preferences.jsonl", lines(60))
    target = settings.home / "models/lora/sft"
    target.mkdir(parents=True)
    for file in taught.iterdir():
        (target / file.name).write_bytes(file.read_bytes())


@pytest.fixture(scope="module")
def taught(untouched: Settings) -> Path:
    run_config = SFTConfig(name="start", model=untouched.model, batch_size=8, learning_rate=0.02, lora_r=4, dev_rows=0)
    run_stage(STAGES["SFT"], run_config, untouched)
    return untouched.home / "models/lora/start"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, new_workspace: Callable[[Path], Settings], taught: Path) -> Settings:
    """A workspace whose runs are never interrupted."""
    settings = new_workspace(tmp_path_factory.mktemp("whole"))
    prepare(settings, taught)
    return settings


@pytest.fixture
def clinic(settings: Settings, taught: Path) -> Settings:
    prepare(settings, taught)
    return settings


def config(settings: Settings, kind=DPOConfig, **more):
    given = {
        "model": settings.model,
        "adapter": "sft",
        "batch_size": 8,
        "learning_rate": 0.01,
        "save_every": 2,
        "max_length": 128,
    }
    return kind(**{**given, "epochs": 2, **more})


def train_preference(config, *, settings, **more) -> TrainingCard:
    return run_stage(STAGES[config.method.upper()], config, settings, **more).card


def planned(settings: Settings, run_config) -> preference.PreferencePlan:
    return make_plan(run_config, settings, find_run(run_config, settings))


def opened(plan: preference.PreferencePlan, settings: Settings):
    """A trainer before its first step."""
    loaded = load(ModelRef(base=plan.config.model, adapter=plan.config.adapter), settings)
    callback = preference.PreferenceCallback(plan.run.metrics, lambda _: None, lambda: False)
    return preference._trainer(plan, loaded, None, plan.config.micro_batch_size or plan.config.batch_size, callback)


def logged(settings: Settings, name: str) -> list[dict]:
    return [json.loads(line) for line in (settings.home / f"models/lora/{name}/metrics.jsonl").read_text().splitlines()]


@KINDS
@pytest.mark.parametrize("adapter", ["sft", None])
def test_it_learns_what_people_preferred(clinic, kind, adapter):
    card = train_preference(config(clinic, kind, adapter=adapter), settings=clinic)
    method = "kto" if kind is KTOConfig else "dpo"
    assert card.method == method and card.metrics["test_accuracy_low"] > 0.5 and card.metrics["test_margin"] > 0.1
    assert card.metrics["test_loss_after"] < card.metrics["test_loss_before"]
    assert card.update_backend == "fast" and card.update_note is None
    rows = logged(clinic, method)
    assert {row["extra"]["backend"] for row in rows if row["phase"] == "TRAINING"} == {"fast"}
    first, steps = rows[0], [row for row in rows if row["phase"] == "TRAINING"]
    assert first["extra"]["test_accuracy"] == 0.5 and first["extra"]["test_margin"] == 0
    assert {"rewards/chosen", "rewards/rejected", "margin"} <= steps[-1]["extra"].keys() and steps[-1]["loss"] < steps[0]["loss"]
    assert ("accuracy" in steps[-1]["extra"]) == (method == "dpo") and ("kl" in steps[-1]["extra"]) == (method == "kto")


@KINDS
def test_the_result_is_an_adapter_like_any_other(clinic, kind):
    run_config = config(clinic, kind)
    card = train_preference(run_config, settings=clinic)
    folder = clinic.home / "models/lora" / run_config.name
    verify_artifact(folder)
    assert {file.suffix for file in folder.iterdir()} <= {".json", ".jsonl", ".md", ".safetensors", ".jinja"}
    assert TrainingCard.from_json((folder / "card.json").read_text()) == card and card.parent == card.inputs["adapter"]
    assert card.config["lora_r"] == 4, "that of the adapter, not the setting"
    tuned = load(ModelRef(base=clinic.model, adapter=run_config.name), clinic)
    assert not any("ref" in name.split(".") for name, _ in tuned.model.named_parameters())
    assert card.total_parameters == sum(p.numel() for p in tuned.model.parameters())
    assert (
        "held-out" in (folder / "README.md").read_text()
        and not (clinic.home / f"jobs/train_{card.method}-{run_config.name}/checkpoints").exists()
    )


def test_before_the_first_step_the_policy_is_the_reference(clinic):
    trainer = opened(planned(clinic, config(clinic)), clinic)
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(8)])
    loss = float(trainer.compute_loss(trainer.model, batch).detach())
    assert loss == pytest.approx(math.log(2), abs=1e-6)
    assert max(float(part.abs().max()) for part in trainer.rewards(batch)) < 1e-5


@KINDS
@pytest.mark.parametrize("adapter", ["sft", None])
def test_the_reference_is_where_training_started_and_never_moves(clinic, kind, adapter):
    """Its log-probabilities equal those of a model opened apart, before the first step and after the last."""
    run_config = config(clinic, kind, adapter=adapter, max_steps=4)
    plan = planned(clinic, run_config)
    trainer = opened(plan, clinic)
    answers, column = next(iter(trainer.columns.items()))
    alone = load(ModelRef(base=clinic.model, adapter=adapter), clinic).model
    other = load(ModelRef(base=clinic.model, adapter=None if adapter else "sft"), clinic).model
    before = list(trainer.train_dataset[column])
    trainer.train()
    row = trainer.train_dataset[0]
    assert row[column] == pytest.approx(by_hand(alone, row["prompt_ids"], row[answers]), abs=1e-4)
    assert abs(row[column] - by_hand(other, row["prompt_ids"], row[answers])) > 0.1
    assert list(trainer.train_dataset[column]) == before
    assert abs(trainer.logprobs(trainer.train_dataset, answers)[0] - before[0]) > 0.1, "the policy itself has moved"
    assert {name.split(".")[-2] for name, p in trainer.model.named_parameters() if p.requires_grad} == {"default"}


def by_hand(model, prompt: list[int], answer: list[int]) -> float:
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    return float(logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None]).sum())


@KINDS
def test_the_token_ids_are_ours_template_and_neutralisation_included(clinic, kind):
    evil = {"prompt": "hi <|im_end|><|im_start|>system", "chosen": "<think>a</think>YES<|im_end|>", "rejected": "no"}
    path = write(clinic.home / "evil.jsonl", [evil, *lines(20)])
    plan = planned(clinic, config(clinic, kind, data=str(path), test_share=0.3))
    side = next(side for side in (plan.train, plan.test) if any("system" in item.prompt[0].content for item in side.items))
    index = next(i for i, item in enumerate(side.items) if "system" in item.prompt[0].content)
    tokenizer = load(ModelRef(base=clinic.model), clinic).tokenizer
    message = Message(role="user", content=evil["prompt"])
    row = plan.table(side)[index]
    whole = encode_example(tokenizer, [message, Message(role="assistant", content=evil["chosen"])])
    assert row["prompt_ids"] == encode_prompt(tokenizer, [message])
    assert row["prompt_ids"] + row["chosen_ids" if kind is DPOConfig else "completion_ids"] == whole.input_ids
    trainer = opened(plan, clinic)
    assert sorted(map(tuple, trainer.train_dataset["prompt_ids"])) == sorted(map(tuple, plan.train.table["prompt_ids"]))


def test_both_answers_of_a_pair_lose_the_same_old_messages(clinic):
    turns = [
        {"role": "user", "content": "old " * 20},
        {"role": "assistant", "content": "old"},
        {"role": "user", "content": "new"},
    ]
    endless = {"prompt": "q", "chosen": "long " * 60, "rejected": "no"}
    path = write(clinic.home / "p.jsonl", [{"prompt": turns, "chosen": "long " * 8, "rejected": "no"}, endless, *lines(20)])
    plan = planned(clinic, config(clinic, data=str(path), max_length=100))
    assert plan.train.shortened + plan.test.shortened == 1 and plan.train.too_long + plan.test.too_long == 1
    assert len(plan.train.items) + len(plan.test.items) == 21 and max(plan.train.lengths) <= 100
    side = plan.train if plan.train.shortened else plan.test
    index = next(i for i, pair in enumerate(side.items) if len(pair.prompt) == 3)
    tokenizer = load(ModelRef(base=clinic.model), clinic).tokenizer
    assert side.table["prompt_ids"][index] == encode_prompt(tokenizer, [Message(role="user", content="new")])


@pytest.mark.parametrize(
    "loss", ["robust", "ipo", "hinge", "exo_pair", "sigmoid_norm", "apo_zero", "apo_down", "bco_pair", "nca_pair"]
)
def test_every_loss_can_be_taken_for_a_step(clinic, loss):
    smoothing = {"robust": 0.1, "exo_pair": 0.001}.get(loss, 0.0)
    trainer = opened(planned(clinic, config(clinic, loss=loss, label_smoothing=smoothing, max_steps=1)), clinic)
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(4)])
    value = trainer.compute_loss(trainer.model, batch)
    value.backward()
    assert math.isfinite(value.item()) and any(p.grad is not None and p.grad.abs().max() > 0 for p in trainer.model.parameters())


def test_kto_without_the_move_in_general_learns_too(clinic):
    card = train_preference(config(clinic, KTOConfig, loss="apo_zero_unpaired"), settings=clinic)
    assert card.metrics["test_margin"] > 0.1


def test_our_way_through_the_output_layer_gives_trl_s_loss_and_gradients(clinic):
    results = []
    for direct in (True, False):
        trainer = opened(planned(clinic, config(clinic)), clinic)
        trainer.path = FastPath("DPO", reason="so")
        trainer.logprobs(trainer.train_dataset.select(range(2)), "chosen_ids")
        assert trainer.direct and trainer.backend == "direct", "on a CPU it is taken where it agrees"
        trainer.direct = direct
        batch = trainer.data_collator([{**trainer.train_dataset[i], "ref_chosen_logps": -9.0} for i in range(8)])
        loss = trainer.compute_loss(trainer.model, batch)
        loss.backward()
        results.append((loss.item(), {n: p.grad for n, p in trainer.model.named_parameters() if p.grad is not None}))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-5)
    assert all(torch.allclose(grad, results[1][1][name], atol=1e-5) for name, grad in results[0][1].items())


@KINDS
@pytest.mark.parametrize("adapter", ["sft", None])
def test_our_own_forward_pass_gives_the_library_s_losses_gradients_and_reference(clinic, kind, adapter, monkeypatch):
    """Also after a step of the optimizer, which it has to notice."""
    results = []
    for fast in (True, False):
        if not fast:
            monkeypatch.setattr(preference_trainer, "open_fast_path", lambda *_: FastPath("DPO", reason="so"))
        trainer = opened(planned(clinic, config(clinic, kind, adapter=adapter)), clinic)
        rows = [trainer.train_dataset[i] for i in range(8)]
        optimizer = torch.optim.SGD([p for p in trainer.model.parameters() if p.requires_grad], lr=0.5)
        losses = []
        for _ in range(2):
            optimizer.zero_grad()
            loss = trainer.compute_loss(trainer.model, trainer.data_collator(rows))
            loss.backward()
            losses.append(loss.item())
            gradients = {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}
            optimizer.step()
        reference = {column: list(trainer.train_dataset[column]) for column in trainer.columns.values()}
        assert trainer.backend == ("fast" if fast else "direct")
        results.append((losses, gradients, reference, trainer.logprobs(trainer.eval_dataset, next(iter(trainer.columns)))))
    (losses, gradients, reference, held_out), theirs = results
    assert losses == pytest.approx(theirs[0], abs=1e-5) and losses[0] != losses[1]
    assert gradients.keys() == theirs[1].keys() and len(gradients) > 4
    assert all(torch.allclose(gradient, theirs[1][name], atol=1e-5, rtol=1e-3) for name, gradient in gradients.items())
    assert all(values == pytest.approx(theirs[2][column], abs=1e-3) for column, values in reference.items())
    assert held_out == pytest.approx(theirs[3], abs=1e-3)


def test_rows_beyond_the_rotary_tables_go_to_the_library(clinic, monkeypatch, caplog):
    monkeypatch.setattr(FastDecoder, "max_positions", 60)
    card = train_preference(config(clinic), settings=clinic)
    assert card.update_backend == "mixed" and "more than 60 tokens" in card.update_note
    assert caplog.text.count("1.7 to 3 times slower") == 1


def test_batches_that_are_only_read_are_not_counted(caplog):
    path = FastPath("DPO", forward=SimpleNamespace(decoder=SimpleNamespace(max_positions=5)))
    with torch.no_grad():  # the reference, an evaluation
        assert path.takes([5]) and not path.takes([6]) and (path.backend, path.sentence) == (None, None)
    assert path.takes([5]) and (path.backend, path.sentence) == ("fast", None)
    assert not path.takes([6]) and path.backend == "mixed" and "more than 5 tokens" in path.sentence
    assert caplog.text.count("more than 5 tokens") == 1
    resumed = FastPath("DPO", reason="there is none here", updates=Counter(fast=3))  # its first process had one
    assert resumed.backend == "fast" and not resumed.takes([5]) and resumed.backend == "mixed"


def test_a_model_that_does_more_behind_its_output_layer_keeps_trl_s_way(clinic, tmp_path: Path, caplog):
    from transformers import CohereConfig

    shape = CohereConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
                         num_key_value_heads=2, logit_scale=0.3)  # fmt: skip
    model = tiny_model(tmp_path / "m", config=shape)
    trainer = opened(planned(clinic, config(clinic, model=str(model), adapter=None)), clinic)
    assert trainer.direct is False and trainer.backend == "library"
    assert (
        "1.7 to 3 times slower (measured on a CPU), because the fast one does not fit: its architecture is cohere" in caplog.text
    )
    row = trainer.train_dataset[0]
    alone = load(ModelRef(base=str(model)), clinic).model
    assert row["ref_chosen_logps"] == pytest.approx(by_hand(alone, row["prompt_ids"], row["chosen_ids"]), abs=1e-3)


@KINDS
def test_thumbs_out_of_proportion_get_advice(clinic, kind):
    rows = [{"prompt": f"q{n}", "completion": f"a{n}", "label": n % 4 != 0} for n in range(80)]
    if kind is DPOConfig:
        assert balance(planned(clinic, config(clinic))) is None
        return
    path = str(write(clinic.home / "t.jsonl", rows))
    plan = planned(clinic, config(clinic, kind, data=path))
    up, down = sum(plan.train.table["label"]), sum(not x for x in plan.train.table["label"])
    assert f"undesirable_weight={up / down / 1.33:.2f} (to {up / down:.2f})" in balance(plan)
    assert balance(planned(clinic, config(clinic, kind, data=path, undesirable_weight=round(up / down / 1.2, 2)))) is None
    less = balance(planned(clinic, config(clinic, kind, data=path, undesirable_weight=10)))
    assert "--set desirable_weight=" in less


def test_thumbs_of_one_kind_and_too_few_rows_are_refused(clinic):
    rows = [{"prompt": f"q{n}", "completion": f"a{n}", "label": True} for n in range(20)]
    with pytest.raises(InputError, match="all 16 answers to train on are liked"):
        planned(clinic, config(clinic, KTOConfig, data=str(write(clinic.home / "t.jsonl", rows))))
    with pytest.raises(InputError, match="1 rows to train on and 0 held out"):
        planned(clinic, config(clinic, data=str(write(clinic.home / "one.jsonl", lines(1)))))
    with pytest.raises(ConfigError, match="reads 512 tokens"):
        planned(clinic, config(clinic, max_length=1024))
    with pytest.raises(ConfigError, match="overwritten"):
        find_run(config(clinic, name="sft"), clinic)


def test_a_bad_line_is_named_and_nothing_is_written(clinic):
    path = write(clinic.home / "bad.jsonl", [*lines(2), {"prompt": "q", "chosen": "secret"}])
    for kind in (DPOConfig, KTOConfig):
        with pytest.raises(InputError, match="line 3") as caught:
            train_preference(config(clinic, kind, data=str(path)), settings=clinic)
        assert "secret" not in str(caught.value)
    assert not [file for file in (clinic.home / "jobs").glob("**/*") if file.is_file()]
    assert not (clinic.home / "models/lora/dpo").exists()


def test_without_a_file_kto_takes_thumbs_before_pairs(clinic):
    assert find_run(config(clinic, KTOConfig), clinic).identity["inputs"]["preference"] == file_sha256(
        clinic.home / "data/preferences/preferences.jsonl"
    )
    path = write(clinic.home / "data/preferences/thumbs.jsonl", [{"prompt": "q", "completion": "a", "label": True}])
    assert find_run(config(clinic, KTOConfig), clinic).identity["inputs"]["preference"] == file_sha256(path)


@pytest.mark.slow
def test_out_of_memory_halves_the_rows_and_the_result_is_whole(clinic, monkeypatch):
    sizes, real = [], preference._trainer

    def narrow(plan, loaded, checkpoint, micro, callback):
        sizes.append(micro)
        trainer = real(plan, loaded, checkpoint, micro, callback)
        if micro > 2:
            monkeypatch.setattr(trainer, "training_step", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
        return trainer

    monkeypatch.setattr(preference, "_trainer", narrow)
    card = train_preference(config(clinic, KTOConfig, max_steps=2), settings=clinic)
    assert sizes == [8, 4, 2] and card.metrics["steps"] == 2
    monkeypatch.setattr(KTOConfig, "smallest_batch", property(lambda _: 4))
    with pytest.raises(Exception, match="not enough memory for 4 rows"):
        train_preference(config(clinic, KTOConfig, max_steps=2, name="never"), settings=clinic)


def test_settings_that_do_not_go_together_are_refused_with_the_reason():
    for kind, pairs, message in (
        (DPOConfig, ["label_smoothing=0.1"], "no effect on the loss sigmoid"),
        (DPOConfig, ["loss=exo_pair"], "exo_pair needs a label_smoothing"),
        (DPOConfig, ["loss=nonsense"], "loss is 'nonsense'"),
        (KTOConfig, ["micro_batch_size=1"], "at least 2 rows"),
        (KTOConfig, ["batch_size=6", "micro_batch_size=4"], "does not divide"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config(kind, file=None, pairs=pairs, flags={}, defaults={})


def test_a_finished_run_is_not_repeated_and_another_is_refused(clinic):
    run_config = config(clinic, max_steps=1)
    first = train_preference(run_config, settings=clinic)
    assert train_preference(run_config, settings=clinic) == first
    with pytest.raises(ConfigError, match=r"another run \(beta 0.1, now 0.5\)"):
        train_preference(config(clinic, max_steps=1, beta=0.5), settings=clinic)


def train_in_child(settings: Settings, kind, die_at: int | None = None, die_in: str | None = None) -> None:
    def die(*_, **__) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if die_in is not None:
        module, _, call = die_in.rpartition(".")
        setattr(__import__(module, fromlist=["x"]), call, die)
    train_preference(
        config(settings, kind), settings=settings, on_progress=lambda progress: die() if progress.step == die_at else None
    )


def start(children, *args) -> int:
    child = children.Process(target=train_in_child, args=args)
    child.start()
    child.join()
    return child.exitcode


def outcome(settings: Settings, name: str) -> tuple[list[str], list[dict]]:
    rows = logged(settings, name)
    for row in rows:
        for place in (row, row["extra"]):
            for key in TIMES:
                place.pop(key, None)
    folder = settings.home / "models/lora" / name
    return [file_sha256(folder / file) for file in ("adapter_model.safetensors", "report.json")], rows


@pytest.mark.parametrize("kind", [DPOConfig, pytest.param(KTOConfig, marks=pytest.mark.slow)])
def test_stopped_and_continued_it_ends_with_the_same_bytes(clinic, whole, kind):
    name = "kto" if kind is KTOConfig else "dpo"
    train_preference(config(whole, kind), settings=whole)
    for stop in (2, 5):
        steps = []
        with pytest.raises(KeyboardInterrupt):
            stop_now = lambda s=steps, n=stop: len(s) >= n  # noqa: E731
            train_preference(config(clinic, kind), settings=clinic, on_progress=steps.append, should_stop=stop_now)
    assert load_newest(clinic.home / f"jobs/train_{name}-{name}/checkpoints").step == 9, "a stop comes a step after the request"
    train_preference(config(clinic, kind), settings=clinic)
    assert outcome(clinic, name) == outcome(whole, name)


@pytest.mark.slow
@KINDS
def test_killed_at_any_point_it_ends_with_the_same_bytes(clinic, children, tmp_path_factory, new_workspace, taught, kind):
    whole = new_workspace(tmp_path_factory.mktemp("whole"))
    prepare(whole, taught)
    name = "kto" if kind is KTOConfig else "dpo"
    assert start(children, whole, kind) == 0
    for step in (1, 3, 8, 11):
        assert start(children, clinic, kind, step) == -signal.SIGKILL
    for place in (
        "medloop.train.runs.checkpoint.save_file",
        "medloop.train.preference._judge",
        "medloop.train.runs.publish.obey_umask",
    ):
        assert start(children, clinic, kind, None, place) == -signal.SIGKILL
    assert not (clinic.home / "models/lora" / name).exists()
    assert start(children, clinic, kind) == 0
    assert outcome(clinic, name) == outcome(whole, name)


def test_the_report_s_numbers_by_hand():
    pairs = [Pair((Message(role="user", content="q"),), "aa", "b"), Pair((Message(role="user", content="r"),), "a", "bbb")]
    # Rewards at beta 0.5: chosen (0.5, -1), rejected (0, -2), so margins (0.5, 1): both right. The reference had 1 of 2 right.
    chosen = AnswerLogprobs(np.array([-1.0, -5.0]), np.array([-2.0, -3.0]))
    rejected = AnswerLogprobs(np.array([-4.0, -6.0]), np.array([-4.0, -2.0]))
    report = report_pairs(pairs, chosen, rejected, 0.5)
    assert report["test"]["value"] == 1 and report["margin"]["mean"] == 0.75 and report["likelier_before"]["value"] == 0.5
    assert report["rewards"] == {"chosen": -0.25, "rejected": -1.0} and report["longer"]["value"] == 0.5
    # Liked (3, 1) against (2, 1): 3>2, 3>1, 1<2, 1=1 gives 2.5 of 4.
    assert roc_auc(np.array([3.0, 1.0, 2.0, 1.0]), np.array([True, True, False, False])) == 0.625


@pytest.mark.parametrize("method", ["dpo", "kto"])
def test_as_a_user_types_it(clinic, monkeypatch, capsys, method):
    words = ["--home", str(clinic.home), "train", method, "--model", clinic.model, "--adapter", "sft", "--set", "max_steps=2"]
    monkeypatch.setattr(sys, "argv", ["medloop", *words, "--max-length", "128"])
    for expected in ("from sft, which is the reference", "Already trained"):
        with pytest.raises(SystemExit) as caught:
            main()
        output = capsys.readouterr().out
        assert not caught.value.code and expected in output and "held-out accuracy 50.0% -> " in output
        assert ("2 steps of 16 on cpu, about" in output) == (expected != "Already trained")


@pytest.mark.parametrize(("name", "kind"), [("dpo", DPOConfig), ("kto", KTOConfig)])
def test_the_run_file_and_the_page_hold_every_setting(name, kind):
    text, page = (ROOT / f"configs/{name}.yaml").read_text(), (ROOT / "docs/stages/preference.md").read_text()
    assert text.startswith(f"# medloop train {name} --config configs/{name}.yaml\n")
    assert set(yaml.safe_load(text)) == set(kind.model_fields)
    assert load_config(kind, file=ROOT / f"configs/{name}.yaml", pairs=(), flags={}, defaults={}) == kind()
    for field, about in kind.model_fields.items():
        assert about.description and about.description.endswith(".") and f"`{field}`" in page, field
