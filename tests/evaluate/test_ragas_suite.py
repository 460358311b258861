"""RAGAS as a process: what the suite makes of its scores, and of everything that can go wrong with it.

The tests marked `ragas` run the real package against a judge on the loopback interface (`make test-ragas`).
"""

import json
import os
import sys
from pathlib import Path

import pytest
from suite_desk import by_metric, examine, means, put_cases, result_of

from medloop.errors import ConfigError, InputError
from medloop.sections import RagasSettings
from medloop.settings import Settings
from medloop.testing.fakes import FakeGenerate
from medloop.testing.processes import run_medloop
from medloop.testing.ragas_judge import RagasJudgeServer

QUESTION = "What causes influenza?"
ANSWER = "Influenza is caused by a virus. Antibiotics cure influenza quickly."
ROW = {
    "id": "flu", "question": QUESTION, "contexts": ["Salt water eases a sore throat.", "Influenza is caused by a virus. Rest helps."],
    "reference": "Influenza is caused by a virus. Vaccination protects people.",
}  # fmt: skip
MODEL = FakeGenerate({}, ANSWER)


def with_ragas(settings: Settings, python: Path, url: str = "http://127.0.0.1:9/v1", timeout_s: float = 20) -> Settings:
    return settings.model_copy(update={"ragas": RagasSettings(python=python, url=url, timeout_s=timeout_s)})


def worker(tmp_path: Path, body: str) -> Path:
    """Stands in for the environment's Python; what it was sent lies in request.json."""
    path = tmp_path / "python"
    lines = (f"#!{sys.executable}", "import json, os, sys", "request = json.load(sys.stdin)",
             f"open({str(tmp_path / 'request.json')!r}, 'w').write(json.dumps(request))", body)  # fmt: skip
    path.write_text("\n".join(lines), encoding="utf-8")
    path.chmod(0o755)
    return path


SCORES = """for name in ("faithfulness", "answer_relevancy", "context_precision", "context_recall"):
    print(json.dumps({"id": "flu", "metric": name, "value": 0.5}), flush=True)"""


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (SCORES, 0.5),
        ("sys.exit(3)", "the RAGAS process ended with code 3"),
        ("print('not json'); print('[1]')", "RAGAS gave no score"),
        ("os.kill(os.getpid(), 9)", "the RAGAS process ended with code -9"),
        (SCORES.replace("0.5", "7"), "RAGAS gave a number outside 0 to 1"),
        (SCORES.replace('"value": 0.5', '"missing": "no score within 5 s"'), "no score within 5 s"),
        (SCORES.replace("0.5", "float('nan')"), "RAGAS gave no number"),
    ],
)
def test_what_the_process_does_not_score_is_missing_with_the_reason(
    settings: Settings, tmp_path: Path, body: str, outcome: float | str
) -> None:
    cases = put_cases(tmp_path, [ROW])
    [case] = result_of(with_ragas(settings, worker(tmp_path, body)), MODEL, f"ragas={cases}").cases
    assert set(by_metric(case).values()) == {outcome}


def test_texts_are_scrubbed_unless_the_judge_is_on_this_machine(settings: Settings, tmp_path: Path) -> None:
    named = {**ROW, "question": "我叫王小明，手机13800138000，流感是怎么引起的？"}
    cases, python = put_cases(tmp_path, [named]), worker(tmp_path, SCORES)
    for url, kept in (("http://127.0.0.1:9/v1", True), ("http://localhost:9/v1", True), ("https://judge.example/v1", False)):
        result_of(with_ragas(settings, python, url), MODEL, f"ragas={cases}")
        assert ("13800138000" in (tmp_path / "request.json").read_text()) is kept, url


def test_a_text_that_cannot_be_scrubbed_is_not_sent(settings: Settings, tmp_path: Path) -> None:
    odd = {**ROW, "question": "my number is one three eight zero zero one three eight zero zero zero, what causes flu?"}
    cases, python = put_cases(tmp_path, [odd]), worker(tmp_path, SCORES)
    [case] = result_of(with_ragas(settings, python, "https://judge.example/v1"), MODEL, f"ragas={cases}").cases
    assert all(str(value).startswith("not sent: ") for value in by_metric(case).values())
    assert not (tmp_path / "request.json").exists()


def test_without_an_environment_or_a_judge_the_error_says_what_to_do(settings: Settings, tmp_path: Path) -> None:
    cases = put_cases(tmp_path, [ROW])
    with pytest.raises(ConfigError, match="make ragas-env"):
        result_of(with_ragas(settings, tmp_path / "none/python"), MODEL, f"ragas={cases}")
    with pytest.raises(ConfigError, match="MEDLOOP_RAGAS__URL"):
        result_of(settings, MODEL, f"ragas={cases}")
    with pytest.raises(InputError, match="line 1: no context passages"):
        bare = put_cases(tmp_path, [{"id": "x", "question": "q"}])
        result_of(with_ragas(settings, worker(tmp_path, SCORES)), MODEL, f"ragas={bare}")


def test_the_command_says_how_to_make_the_environment(workspace: Path) -> None:
    words = ("eval", "--model", "embedded:tiny", "--suite", "ragas")
    done = run_medloop(*words, cwd=workspace, MEDLOOP_RAGAS__URL="http://127.0.0.1:9/v1", MEDLOOP_RAGAS__PYTHON="none/python")
    assert done.returncode == 2 and "make ragas-env" in done.stderr


def real(settings: Settings, url: str, timeout_s: float = 60) -> Settings:
    python = Path(os.environ.get("RAGAS_PYTHON", ".venv-ragas/bin/python"))
    assert python.is_file(), f"{python} does not exist; run: make ragas-env"
    return with_ragas(settings, python, url, timeout_s)


@pytest.mark.ragas
def test_the_four_metrics_of_the_real_package_are_those_worked_out_by_hand(settings: Settings, tmp_path: Path) -> None:
    bare = {"id": "bare", "question": "流感是什么引起的？", "contexts": ["流感由病毒引起。"]}
    cases = put_cases(tmp_path, [ROW, bare])
    with RagasJudgeServer() as judge:
        model = FakeGenerate({QUESTION: ANSWER, "流感是什么引起的？": "流感由病毒引起。"})
        result = result_of(real(settings, judge.url), model, f"ragas={cases}")
        done = examine(real(settings, judge.url), {"m": model}, f"ragas={cases}")
    scores = {case.id: by_metric(case) for case in result.cases}
    # faithfulness: 1 of 2 statements. precision: useless before useful, (1/2) / 1. recall: 1 of 2 statements of the reference.
    # relevancy: question {what, causes, influenza}, answer {influenza, caused, virus, antibiotics, cure, quickly}: 1 / sqrt(3 * 6).
    expected = {"faithfulness": 0.5, "context_precision": 0.5, "context_recall": 0.5, "answer_relevancy": 1 / 18**0.5}
    assert scores["flu"] == pytest.approx(expected, abs=1e-5)
    assert scores["bare"]["faithfulness"] == 1 and scores["bare"]["context_recall"] == "the case has no reference answer"
    [ragas] = means(done, "ragas")
    assert ragas["faithfulness"].mean == 0.75 and (ragas["context_recall"].n, ragas["context_recall"].missing) == (1, 1)


@pytest.mark.ragas
@pytest.mark.parametrize("fault", ["error_500", "html", "bad_json", "empty", "wrong_form", "reset", "hang", "infinite_vector"])
def test_a_judge_that_misbehaves_costs_scores_and_never_gives_one(settings: Settings, tmp_path: Path, fault: str) -> None:
    cases = put_cases(tmp_path, [ROW])
    with RagasJudgeServer(fault=lambda n: fault, hang_s=60) as judge:
        [case] = result_of(real(settings, judge.url, timeout_s=12), MODEL, f"ragas={cases}").cases
    values = by_metric(case)
    if fault == "infinite_vector":  # only the embeddings are broken
        assert isinstance(values.pop("answer_relevancy"), str) and set(values.values()) == {0.5}
    else:
        assert all(isinstance(value, str) for value in values.values()), values
    assert json.dumps(values).count(ANSWER[:20]) == 0, "a reason never repeats the texts"
