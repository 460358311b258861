"""`medloop predict`: any shape of input, answers continued where they were stopped, nothing half-written."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app, main
from medloop.contracts import ModelRef
from medloop.errors import ConfigError, InputError
from medloop.loop.workspace import init_workspace
from medloop.models.generate import TorchGenerator
from medloop.models.load import load
from medloop.models.predict import Sampling, predict
from medloop.models.template import encode_prompt
from medloop.testing.models import tiny_adapter
from medloop.train.rl.experience import read_prompts

SHORT = Sampling(max_new_tokens=6)
DRAWN = Sampling(max_new_tokens=6, temperature=1.0, seed=3)


def write(path: Path, *rows: dict | str) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write(tmp_path / "in.jsonl", *({"id": f"q{n}", "question": "why " * (n % 5 + 1)} for n in range(12)))


def test_every_known_shape_is_answered_under_its_id(base: Path, settings, tmp_path: Path):
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    record = {
        "record_id": "sha256:" + "0" * 64, "conversation": {"messages": turns}, "language": "en", "strata": ["routine"],
        "origin": {"source": "s", "line": 1},
    }  # fmt: skip
    rows = [
        record,
        {"id": 7, "messages": turns},
        {"prompt": "q"},
        {"question": "q", "id": "x"},
        {"prompt_id": "p", "prompt": turns[:1]},
    ]
    source = write(tmp_path / "in.jsonl", *rows)
    predict(source, tmp_path / "out.jsonl", ModelRef(base=str(base)), SHORT, settings)
    predictions = read(tmp_path / "out.jsonl")
    assert [row["id"] for row in predictions] == ["sha256:" + "0" * 64, "7", "line-3", "x", "p"]
    assert len({row["answer"] for row in predictions}) == 1, "the reference answer is not shown to the model"
    assert predict(source, tmp_path / "out.jsonl", ModelRef(base=str(base)), SHORT, settings).already_there == 5
    assert {row["question"] for row in predictions} == {"q"}
    assert set(predictions[0]) == {
        "id", "prompt_id", "question", "answer", "model", "finish_reason", "n_tokens", "run", "adapter"
    }  # fmt: skip


def test_the_model_reads_the_passages_that_its_policy_was_trained_to_read(base: Path, settings, tmp_path: Path):
    """Token for token the prompt of RL training, with the limits on the card of the adapter; the output says what was read."""
    init_workspace(tmp_path)
    passages = ["Honey soothes a cough.", "See a doctor about blood. " * 30, "A third passage."]
    source = write(tmp_path / "in.jsonl", {"id": "q", "question": "I cough. What helps?", "context": passages})
    loaded = load(ModelRef(base=str(base)), settings)
    tiny_adapter(tmp_path / "models/rl/irs", base, top_k=2, max_prompt=260)
    prompts = []
    with pytest.MonkeyPatch.context() as patch:
        original = TorchGenerator.__call__
        patch.setattr(
            TorchGenerator, "__call__", lambda self, asked, **more: prompts.extend(asked) or original(self, asked, **more)
        )
        words = ["predict", str(source), "--output", str(tmp_path / "out.jsonl"), "--model", str(base), "--adapter", "irs"]
        done = CliRunner().invoke(app, ["--home", str(tmp_path), *words, "--max-new-tokens", "6"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    [trained] = read_prompts(source, loaded.tokenizer, max_tokens=260, top_k=2).prompts
    assert tuple(encode_prompt(loaded.tokenizer, prompts[0])) == trained.token_ids
    [row] = read(tmp_path / "out.jsonl")
    assert row["question"] == "I cough. What helps?" and "\n".join(row["context"]) == trained.context
    assert row["context"][0] == passages[0] and row["context"][1].endswith("[truncated]") and len(row["context"]) == 2


def test_a_second_call_answers_only_what_is_missing(base: Path, settings, questions: Path, tmp_path: Path):
    out, ref = tmp_path / "out.jsonl", ModelRef(base=str(base))
    assert predict(questions, out, ref, SHORT, settings).answered == 12
    before = out.read_bytes()
    again = predict(questions, out, ref, SHORT, settings)
    assert (again.answered, again.already_there) == (0, 12) and out.read_bytes() == before


@pytest.mark.parametrize("sampling", [SHORT, DRAWN])
@pytest.mark.parametrize("cut", [1, 40, 900])
def test_a_file_written_in_two_goes_equals_one_written_in_one(
    base: Path, settings, questions: Path, tmp_path: Path, sampling, cut: int
):
    whole, parts, ref = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl", ModelRef(base=str(base))
    predict(questions, whole, ref, sampling, settings, batch_size=16)
    parts.write_bytes(whole.read_bytes()[:-cut])  # as a kill leaves it: some lines, the last one torn
    predict(questions, parts, ref, sampling, settings, batch_size=2)
    assert parts.read_bytes() == whole.read_bytes()


def test_what_was_answered_before_a_crash_stays(
    base: Path, settings, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out, calls, real = tmp_path / "out.jsonl", [], TorchGenerator.__call__

    def failing(self, prompts, **more):
        calls.append(len(prompts))
        if len(calls) == 2:
            raise RuntimeError("power cut")
        return real(self, prompts, **more)

    monkeypatch.setattr(TorchGenerator, "__call__", failing)
    with pytest.raises(RuntimeError):
        predict(questions, out, ModelRef(base=str(base)), SHORT, settings, batch_size=2)
    assert len(read(out)) == 2
    assert predict(questions, out, ModelRef(base=str(base)), SHORT, settings, batch_size=2).answered == 10


def test_a_question_that_changed_under_its_id_is_answered_again(base: Path, settings, tmp_path: Path):
    out, ref = tmp_path / "out.jsonl", ModelRef(base=str(base))
    predict(write(tmp_path / "in.jsonl", {"id": "a", "question": "one"}), out, ref, SHORT, settings)
    assert predict(write(tmp_path / "in.jsonl", {"id": "a", "question": "two"}), out, ref, SHORT, settings).answered == 1


def test_answers_of_other_settings_are_not_mixed(base: Path, settings, questions: Path, tmp_path: Path):
    out, ref = tmp_path / "out.jsonl", ModelRef(base=str(base))
    predict(questions, out, ref, SHORT, settings)
    before = out.read_bytes()
    with pytest.raises(ConfigError, match="--replace"):
        predict(questions, out, ref, DRAWN, settings)
    assert out.read_bytes() == before
    assert predict(questions, out, ref, DRAWN, settings, replace=True).answered == 12


def test_the_input_is_never_overwritten(base: Path, settings, questions: Path):
    before = questions.read_bytes()
    with pytest.raises(ConfigError, match="input itself"):
        predict(questions, questions, ModelRef(base=str(base)), SHORT, settings, replace=True)
    assert questions.read_bytes() == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"question": ""}', "line 3: content"),
        ('{"text": "patient text"}', "line 3: the line has none of"),
        ("{patient text", "line 3: not valid JSON"),
        ('["patient text"]', "line 3: expected an object"),
        ('{"messages": [{"role": "doctor", "content": "patient text"}]}', "line 3: messages.0.role"),
        ('{"messages": [{"role": "assistant", "content": "patient text"}]}', "line 3: messages"),
        ('{"messages": [{"role": "system", "content": "patient text"}]}', "line 3: no question"),
        ('{"id": "q", "question": "patient text"}', "line 3: duplicate id .first seen on line 1"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(base: Path, settings, tmp_path: Path, line: str, message: str):
    source = write(tmp_path / "in.jsonl", {"id": "q", "question": "x"}, "", line, {"question": "y"})
    with pytest.raises(InputError, match=message) as caught:
        predict(source, tmp_path / "out.jsonl", ModelRef(base=str(base)), SHORT, settings)
    assert "patient text" not in str(caught.value) and "in.jsonl" in str(caught.value)
    assert not (tmp_path / "out.jsonl").exists()


def medloop(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["medloop", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_the_command_answers_and_counts(base: Path, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    (tmp_path / "medloop.yaml").write_text("")
    words = ("predict", str(questions), "--output", str(tmp_path / "out.jsonl"), "--model", str(base), "--max-new-tokens", "5")
    assert medloop(monkeypatch, "--home", str(tmp_path), *words) == 0
    output = capsys.readouterr().out
    assert "12 answered" in output and "truncated at 5 tokens" in output and len(read(tmp_path / "out.jsonl")) == 12


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--model", "no/such/folder"), 4, "neither a folder nor a hub id"),
        (("--adapter", "nobody"), 4, "no adapter 'nobody'"),
        (("--temperature", "-1"), 2, "'--temperature': must be at least 0"),
        (("--max-new-tokens", "0"), 2, "'--max-new-tokens': must be at least 1"),
    ],
)
def test_a_wrong_flag_is_one_sentence(
    base: Path,
    questions: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
    words: tuple[str, ...],
    code: int,
    message: str,
):
    (tmp_path / "medloop.yaml").write_text("")
    more = () if "--model" in words else ("--model", str(base))
    got = medloop(
        monkeypatch, "--home", str(tmp_path), "predict", str(questions), "-o", str(tmp_path / "out.jsonl"), *words, *more
    )
    stderr = capsys.readouterr().err
    assert got == code and message in stderr and "Traceback" not in stderr
