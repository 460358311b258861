"""SFT: what it learns, what it leaves, what it refuses."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GPT2Config

from medloop.contracts import Message, ModelRef, TrainingCard
from medloop.errors import BusyError, ConfigError, InputError, IntegrityError, ResultError
from medloop.loop.train import STAGES, run_stage
from medloop.models.generate import load_generator
from medloop.models.load import load, load_tokenizer
from medloop.models.rollout.decode import FastDecoder
from medloop.settings import Settings
from medloop.store.files.artifacts import file_sha256, verify_artifact
from medloop.testing.models import tiny_model
from medloop.train import sft
from medloop.train.examples.sft_examples import IGNORED, encode_file
from medloop.train.runs.find_run import find_run
from medloop.train.sft import SFTConfig, make_plan
from medloop.train.trl import resumable, sft_trainer
from medloop.train.trl.captured_loss import CapturedLoss
from medloop.train.trl.fast_path import has_dropout


def config(settings, **more) -> SFTConfig:
    return SFTConfig(**{"model": settings.model, "batch_size": 8, "learning_rate": 0.02, "save_every": 3, **more})


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def train_sft(config, *, settings, replace=False) -> TrainingCard:
    return run_stage(STAGES["SFT"], config, settings, replace=replace).card


def losses(settings, name: str = "sft") -> list[float]:
    lines = rows(settings.home / f"jobs/train_sft-{name}/metrics.jsonl")
    return [row.get("loss") or row["extra"]["dev_loss"] for row in lines]


@pytest.fixture(scope="module")
def first_run(new_workspace, tmp_path_factory) -> tuple[Settings, TrainingCard]:
    """The plain run, made once."""
    settings = new_workspace(tmp_path_factory.mktemp("first") / "clinic")
    return settings, train_sft(config(settings), settings=settings)


@pytest.fixture
def trained(first_run, settings) -> Settings:
    """A copy of the workspace where the plain run has ended."""
    shutil.copytree(first_run[0].home, settings.home, dirs_exist_ok=True)
    return settings


def test_the_fast_forward_without_padding_has_the_loss_curve_of_the_library(first_run, settings, monkeypatch):
    """As on a GPU, where it is used: its plain operations on a CPU."""
    monkeypatch.setattr(sft_trainer.ResumableSFT, "_wants_fast", lambda self: True)
    card = train_sft(config(settings), settings=settings)
    lines = rows(settings.home / "models/lora/sft/metrics.jsonl")
    assert {row["extra"]["backend"] for row in lines if row["phase"] == "TRAINING"} == {"fast"}
    assert losses(settings) == pytest.approx(losses(first_run[0]), rel=1e-3)
    assert card.metrics["tokens"] == first_run[1].metrics["tokens"]
    shares = [
        {
            row["iter"]: row["extra"]["token_accuracy"]
            for row in rows(home / "models/lora/sft/metrics.jsonl")
            if "token_accuracy" in row["extra"]
        }
        for home in (settings.home, first_run[0].home)
    ]
    assert shares[0] == pytest.approx({step: share for step, share in shares[1].items() if step % 10 == 1}, abs=0.01)


def captured_on_a_cpu(self, packed, num_items):
    """Padded as for a CUDA graph; its replay is the same computation."""

    def capture(key, *_):
        entry = captured.new_entry(key)
        entry.loss = torch.zeros(())

        def replay():
            entry.loss.copy_(captured.add_gradients(entry))

        entry.graph = SimpleNamespace(replay=replay)
        captured.graphs[key] = entry
        return True

    captured = self.captured = self.captured or CapturedLoss(self.fast, [p for p in self.model.parameters() if p.requires_grad])
    captured._capture = capture
    return captured(packed, num_items)


def test_padded_batches_of_graphs_have_the_same_loss_curve_and_are_named(first_run, settings, monkeypatch):
    monkeypatch.setattr(sft_trainer.ResumableSFT, "_wants_fast", lambda self: True)
    monkeypatch.setattr(sft_trainer.ResumableSFT, "_captured_loss", captured_on_a_cpu)
    with monkeypatch.context() as ended_early, pytest.raises(ZeroDivisionError):  # after the last checkpoint, before the card
        ended_early.setattr(sft, "training_card", lambda *_, **__: 1 / 0)
        train_sft(config(settings), settings=settings)
    assert train_sft(config(settings), settings=settings).update_backend == "graph"  # of the whole run
    lines = [row for row in rows(settings.home / "models/lora/sft/metrics.jsonl") if row["phase"] == "TRAINING"]
    ways = [row["extra"]["backend"] for row in lines]
    assert ways == ["graph" if number % 10 else "fast" for number in range(len(lines))]  # every tenth step measures the accuracy
    assert lines[-1]["extra"]["graph_share"] == pytest.approx(ways.count("graph") / len(ways), abs=1e-3)
    assert losses(settings) == pytest.approx(losses(first_run[0]), rel=1e-3)


def test_batches_beyond_the_rotary_tables_go_to_the_library(first_run, settings, monkeypatch, caplog):
    monkeypatch.setattr(sft_trainer.ResumableSFT, "_wants_fast", lambda self: True)
    monkeypatch.setattr(FastDecoder, "max_positions", 100)
    assert train_sft(config(settings), settings=settings).update_backend == "mixed"
    lines = rows(settings.home / "models/lora/sft/metrics.jsonl")
    assert {row["extra"]["backend"] for row in lines if row["phase"] == "TRAINING"} == {"fast", "library"}
    assert losses(settings) == pytest.approx(losses(first_run[0]), rel=1e-3)
    assert caplog.text.count("rows of more than 100 tokens") == 1


def test_dropout_inside_the_attention_counts(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(tiny_model(tmp_path / "base"))
    assert not any(map(has_dropout, model.modules()))
    dropping = AutoModelForCausalLM.from_pretrained(tmp_path / "base", attention_dropout=0.1)
    assert any(map(has_dropout, dropping.modules()))


def test_it_learns_and_says_so(settings):
    card = train_sft(config(settings, epochs=3), settings=settings)
    assert card.metrics["dev_loss_after"] < card.metrics["dev_loss_before"] - 1
    assert card.metrics["train_loss_last"] < card.metrics["train_loss_first"] - 1
    assert card.metrics["steps"] == 21 and card.metrics["examples"] == 53
    logged = rows(settings.home / "models/lora/sft/metrics.jsonl")
    assert [row["iter"] for row in logged if row["phase"] == "TRAINING"] == list(range(1, 22))
    assert [row["iter"] for row in logged if row["phase"] == "METRICS"] == [0, 7, 14, 21], (
        "the dev loss at the start and after each epoch"
    )


def test_the_result_is_whole_loads_and_holds_no_pickle(first_run):
    settings, card = first_run
    folder = settings.home / "models/lora/sft"
    verify_artifact(folder)
    assert {file.name for file in folder.iterdir()} == {
        "MANIFEST.json", "README.md", "adapter_config.json", "adapter_model.safetensors", "card.json", "chat_template.jinja",
        "metrics.jsonl", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert TrainingCard.from_json((folder / "card.json").read_text()) == card
    modules = json.loads((folder / "adapter_config.json").read_text())["target_modules"]
    assert modules == sorted(modules), "the same adapter is the same bytes"
    assert load(ModelRef(base=settings.model, adapter="sft"), settings).adapter_sha256
    assert not (settings.home / "jobs/train_sft-sft/checkpoints").exists()


def test_the_card_names_what_went_in_by_hash(settings):
    card = train_sft(config(settings, seed=7), settings=settings)
    processed = settings.home / "data/processed"
    assert card.inputs == {"train": file_sha256(processed / "train.jsonl"), "dev": file_sha256(processed / "dev.jsonl")}
    assert card.base_sha256 == load(ModelRef(base=settings.model), settings).sha256
    assert card.seed == 7 and card.config["batch_size"] == 8 and card.versions["trl"]


def test_the_adapter_says_what_it_was_taught(settings):
    path = settings.home / "one.jsonl"
    turns = [{"role": "user", "content": "What now?"}, {"role": "assistant", "content": "<think>x</think>Rest."}]
    path.write_text(json.dumps({"messages": turns}) + "\n")
    train_sft(config(settings, data=str(path), epochs=60, batch_size=1, learning_rate=0.01), settings=settings)
    generate = load_generator(ModelRef(base=settings.model, adapter="sft"), settings)
    answer = generate([(Message(role="user", content="What now?"),)], max_new_tokens=40)[0]
    assert answer.text == "<think>x</think>Rest." and answer.finish_reason == "stop"


def test_loss_falls_on_answers_only(settings):
    tokenizer = load_tokenizer(Path(settings.model))
    encoded = encode_file(tokenizer, settings.home / "data/processed/train.jsonl", max_length=512)
    for row in list(encoded.rows)[:5]:
        learnt = [token for token, label in zip(row["input_ids"], row["labels"], strict=True) if label != IGNORED]
        text = tokenizer.decode(learnt)
        assert text.startswith("<think>kind") and text.endswith("drink. <|im_end|>")
        assert all(label in (IGNORED, token) for token, label in zip(row["input_ids"], row["labels"], strict=True))


def test_too_long_and_unanswered_rows_are_left_out_and_counted(settings):
    path = settings.home / "mixed.jsonl"
    question = {"role": "user", "content": "q"}
    lines = [[question, {"role": "assistant", "content": "a" * n}] for n in (10, 900, 20)] + [[question]]
    path.write_text("".join(json.dumps({"messages": turns}) + "\n" for turns in lines))
    encoded = encode_file(load_tokenizer(Path(settings.model)), path, max_length=200)
    assert len(encoded.lengths) == 2 and encoded.left_out(200) == (
        "left out: 1 longer than max_length (200 tokens), 1 without an answer"
    )


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_the_loss_does_not_depend_on_the_micro_batch(settings, first_run, micro: int):
    train_sft(config(settings, name="parts", micro_batch_size=micro), settings=settings)
    assert losses(settings, "parts") == pytest.approx(losses(first_run[0]), rel=1e-4)


def test_the_cheap_loss_on_a_cpu_is_the_loss_of_trl(settings, monkeypatch: pytest.MonkeyPatch):
    agrees = sft_trainer.ResumableSFT._direct_agrees
    monkeypatch.setattr(sft_trainer.ResumableSFT, "_direct_agrees", lambda self: agrees(self) or pytest.fail("not used"))
    train_sft(config(settings, name="ours"), settings=settings)
    monkeypatch.setattr(sft_trainer.ResumableSFT, "_direct_agrees", lambda self: False)
    train_sft(config(settings, name="theirs"), settings=settings)
    assert losses(settings, "ours") == pytest.approx(losses(settings, "theirs"), rel=1e-5)


def test_an_architecture_that_scales_its_output_goes_the_way_of_trl(settings, tmp_path: Path):
    from transformers import CohereConfig

    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    base = tiny_model(tmp_path / "cohere", config=CohereConfig(**shape, logit_scale=0.25, max_position_embeddings=256))
    run_config = config(settings, model=str(base), max_steps=2)
    plan = make_plan(run_config, settings, find_run(run_config, settings))
    from medloop.train.sft import _trainer

    trainer = _trainer(
        plan, load(ModelRef(base=str(base)), settings), None, 8, resumable.MetricsCallback(plan.run.metrics, lambda _: None, bool)
    )
    assert not trainer.direct


def test_another_architecture_trains_too(settings, tmp_path: Path):
    base = tiny_model(tmp_path / "gpt2", config=GPT2Config(n_embd=32, n_layer=1, n_head=4, n_positions=256))
    card = train_sft(config(settings, model=str(base), epochs=2), settings=settings)
    assert card.metrics["dev_loss_after"] < card.metrics["dev_loss_before"]


def test_all_weights_become_a_model_of_their_own(settings):
    card = train_sft(config(settings, full=True, learning_rate=0.01), settings=settings)
    assert card.trainable_parameters == card.total_parameters
    before, after = (load(ModelRef(base=base), settings).model for base in (settings.model, "models/full/sft"))
    assert not torch.equal(before.get_input_embeddings().weight, after.get_input_embeddings().weight)
    assert card.metrics["dev_loss_after"] < card.metrics["dev_loss_before"]


def test_a_bfloat16_base_gets_float32_adapters_and_answers_unmerged(settings, monkeypatch: pytest.MonkeyPatch):
    """As on a GPU, tried on a CPU."""
    monkeypatch.setattr("medloop.models.runtime.number_type", lambda device, trainable: torch.bfloat16)
    card = train_sft(config(settings, epochs=2), settings=settings)
    assert card.metrics["dev_loss_after"] < card.metrics["dev_loss_before"]
    weights = load_file(settings.home / "models/lora/sft/adapter_model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    generate = load_generator(ModelRef(base=settings.model, adapter="sft"), settings)
    assert isinstance(generate.loaded.model, PeftModel)
    assert generate([(Message(role="user", content="Case 1"),)], max_new_tokens=4)[0].n_tokens


def test_it_learns_on_a_base_in_four_bits(settings):
    pytest.importorskip("bitsandbytes")
    card = train_sft(config(settings, load_in_4bit=True, epochs=2), settings=settings)
    assert card.metrics["dev_loss_after"] < card.metrics["dev_loss_before"] - 1


def test_a_finished_run_is_not_repeated(trained, first_run):
    assert train_sft(config(trained), settings=trained) == first_run[1]


def test_another_run_under_the_same_name_is_refused_and_replaced_on_demand(trained, first_run):
    first = first_run[1]
    with pytest.raises(ConfigError, match=r"another run \(lora_r 8, now 4, seed 42, now 1\).*--replace"):
        train_sft(config(trained, lora_r=4, seed=1), settings=trained)
    assert train_sft(config(trained), settings=trained) == first
    second = train_sft(config(trained, lora_r=4, seed=1), settings=trained, replace=True)
    assert second.trainable_parameters < first.trainable_parameters


def test_changed_data_under_the_same_name_is_refused(trained):
    path = trained.home / "data/processed/train.jsonl"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(ConfigError, match="other train data"):
        train_sft(config(trained), settings=trained)


def test_an_unfinished_run_with_other_settings_is_refused(settings):
    stop_after(settings, 4)
    with pytest.raises(ConfigError, match=r"unfinished run \(epochs 1.0, now 2.0\)"):
        train_sft(config(settings, epochs=2), settings=settings)


def test_a_run_that_was_given_up_is_never_continued(settings):
    stop_after(settings, 4)
    run = find_run(config(settings, lora_r=4), settings)
    assert run.start()[1] is None
    assert run.start()[1] is None, "nor after a kill before the first checkpoint of the new one"


def test_a_damaged_result_is_not_called_trained(trained):
    weights = trained.home / "models/lora/sft/adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(IntegrityError, match=r"adapter_model\.safetensors"):
        train_sft(config(trained), settings=trained)


def test_two_processes_may_not_train_one_name(settings):
    run = find_run(config(settings), settings)
    with run.lock(), pytest.raises(BusyError, match="train_sft-sft"):
        train_sft(config(settings), settings=settings)


def test_a_loss_that_is_no_number_stops_and_publishes_nothing(settings, monkeypatch: pytest.MonkeyPatch):
    real = sft_trainer.ResumableSFT.compute_loss

    def broken(self, *args, **kwargs):
        loss = real(self, *args, **kwargs)
        return loss * math.nan if self.state.global_step == 4 else loss

    monkeypatch.setattr(sft_trainer.ResumableSFT, "compute_loss", broken)
    with pytest.raises(ResultError, match="not finite at step 5"):
        train_sft(config(settings), settings=settings)
    assert not (settings.home / "models/lora/sft").exists()
    assert [path.name for path in (settings.home / "jobs/train_sft-sft/checkpoints").iterdir()] == ["step-00000003"]


def test_out_of_memory_halves_the_micro_batch_and_goes_on(settings, first_run, monkeypatch: pytest.MonkeyPatch):
    real = sft_trainer.ResumableSFT.training_step

    def narrow(self, model, inputs, *args):
        if len(inputs["input_ids"]) > 2 and self.state.global_step >= 4:
            raise torch.OutOfMemoryError("no room")
        return real(self, model, inputs, *args)

    monkeypatch.setattr(sft_trainer.ResumableSFT, "training_step", narrow)
    train_sft(config(settings, name="tight"), settings=settings)
    assert losses(settings, "tight") == pytest.approx(losses(first_run[0]), rel=1e-4)


def stop_after(settings, step: int, **more) -> None:
    run_config, steps = config(settings, **more), []
    with pytest.raises(KeyboardInterrupt):
        run_stage(STAGES["SFT"], run_config, settings, on_progress=steps.append, should_stop=lambda: len(steps) >= step - 1)


def test_a_stop_leaves_a_checkpoint_and_the_same_call_goes_on(settings, first_run):
    stop_after(settings, 4)
    run_config = config(settings)
    assert make_plan(run_config, settings, find_run(run_config, settings)).steps_done == 4
    state = json.loads((settings.home / "jobs/train_sft-sft/checkpoints/step-00000004/trainer_state.json").read_text())
    assert state["log_history"] == [], "the log is in metrics.jsonl and does not grow the checkpoints"
    train_sft(run_config, settings=settings)
    assert losses(settings) == losses(first_run[0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ('{"messages": []}\n', "line 1"),
        ('{"question": "q"}\n', "no usable example"),
        ('\n{"messages": [{"role": "user", "content": "secret"}, {"role": "user", "content": "x"}]}\n', "line 2"),
        ("not json\n{}\n", "line 1: not valid JSON"),
    ],
)
def test_a_bad_file_is_named_with_its_line_and_nothing_is_written(settings, content: str, message: str):
    path = settings.home / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        train_sft(config(settings, data=str(path)), settings=settings)
    assert "bad.jsonl" in str(caught.value) and "secret" not in str(caught.value)
    assert not [path for path in settings.home.glob("[jm]o*/**/*") if path.is_file()], "no job, no model"


def test_without_a_training_file_it_says_how_to_make_one(settings):
    (settings.home / "data/processed/train.jsonl").unlink()
    with pytest.raises(InputError, match="medloop data prepare"):
        train_sft(config(settings), settings=settings)


def test_nothing_is_reported_to_anybody(settings, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", lambda *a, **k: pytest.fail("telemetry"))
    train_sft(config(settings, max_steps=1), settings=settings)


def test_replace_starts_anew_instead_of_going_on(settings, first_run):
    stop_after(settings, 4)
    for run_config in (config(settings), config(settings, learning_rate=0.01)):
        anew = make_plan(run_config, settings, find_run(run_config, settings), replace=True)
        assert anew.steps_done is None
    train_sft(config(settings), settings=settings, replace=True)
    assert losses(settings) == losses(first_run[0])
