"""Multiple choice: a case computed by hand, every public form of file, and errors that name the line."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import Missing, Score
from medloop.contracts.suite import LogLikelihood, SuiteConfig, SuiteResult
from medloop.errors import ConfigError, InputError
from medloop.evaluate.suites.multiple_choice import MultipleChoice, letter_choices, text_choices
from medloop.testing.models import tiny_model
from medloop.testing.scripted_model import ScriptedModel

FEVER = {
    "id": "fever",
    "question": "What is fever?",
    "options": {"A": "heat", "B": "a raised temperature"},
    "answer": "B",
    "lang": "en",
}
DRUG = {
    "id": "drug",
    "question": "What is aspirin?",
    "options": ["a drug", "an animal", "a town"],
    "answer_index": 0,
    "category": "Drugs",
}
ROLE = {"id": "role", "question": "Does it help?", "contexts": ["It was tried.", "It helped."], "label": "yes", "lang": "en"}
ZH = {"id": "zh", "question": "流感的病原体是", "options": {"A": "病毒", "B": "细菌"}, "answer_idx": "A"}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def run(path: Path, model: ScriptedModel, n: int = 100) -> SuiteResult:
    return MultipleChoice(path).run(model, SuiteConfig(n=n), lambda done, total: None)


def values(result: SuiteResult, metric: str) -> dict[str, float]:
    return {case.id: s.value for case in result.cases for s in case.scores if s.name == metric and isinstance(s, Score)}


def test_a_case_computed_by_hand(tmp_path: Path):
    """heat -8 / 4 bytes = -2; a raised temperature -20 / 20 bytes = -1. a drug -6 / 6, an animal -18 / 9, a town -5 / 6."""
    table = {
        " heat": -8.0, " a raised temperature": -20.0, " a drug": -6.0, " an animal": -18.0, " a town": -5.0, " yes": -1.0,
        " no": -2.0, " maybe": -3.0, "病毒": -4.0, "细菌": -3.0, " A": -1.0, " B": -2.0, " C": -3.0, "A": -2.0, "B": -5.0,
    }  # fmt: skip
    result = run(write(tmp_path / "q.jsonl", FEVER, DRUG, ROLE, ZH), ScriptedModel(lambda prompt, text: table[text]))
    assert values(result, "accuracy") == {"fever": 0.0, "drug": 0.0, "role": 1.0, "zh": 0.0}
    assert values(result, "accuracy_norm") == {"fever": 1.0, "drug": 0.0, "role": 1.0, "zh": 0.0}
    assert values(result, "accuracy_letter") == {"fever": 0.0, "drug": 1.0, "zh": 1.0}  # yes and no have no letters
    # guessing: (1/2 + 1/3 + 1/3 + 1/2) / 4; the first option is right in 3 of 4 questions, and in 2 of the 3 with letters
    assert result.baselines["accuracy"] == {"random": pytest.approx(5 / 12), "majority": 0.75}
    assert result.baselines["accuracy_letter"] == {"random": pytest.approx(4 / 9), "majority": pytest.approx(2 / 3)}
    assert {case.id: case.strata for case in result.cases}["drug"] == ("subject:Drugs",)
    assert {case.id: case.language for case in result.cases} == {"fever": "en", "drug": "en", "role": "en", "zh": "zh"}


def test_bytes_not_characters_normalise(tmp_path: Path):
    question = {"question": "原因是什么", "options": {"A": "病毒", "B": "germs"}, "answer": "A", "lang": "zh"}
    table = {"病毒": -6.0, "germs": -6.0, "A": -1.0, "B": -1.0}  # by bytes -1 and -1.2, by characters -3 and -1.2
    result = run(write(tmp_path / "q.jsonl", question), ScriptedModel(lambda prompt, text: table[text]))
    assert values(result, "accuracy_norm") == {"line-1": 1.0}


def test_prompts_are_those_of_the_manual(tmp_path: Path):
    fever, drug, role, zh = MultipleChoice(write(tmp_path / "q.jsonl", FEVER, DRUG, ROLE, ZH)).file.questions
    assert text_choices(fever) == ("Question: What is fever?\nAnswer:", (" heat", " a raised temperature"))
    assert text_choices(role).prompt == "Abstract: It was tried.\nIt helped.\nQuestion: Does it help?\nAnswer:"
    assert text_choices(zh) == ("问题：流感的病原体是\n答案：", ("病毒", "细菌"))
    assert letter_choices(drug) == ("Question: What is aspirin?\nA. a drug\nB. an animal\nC. a town\nAnswer:", (" A", " B", " C"))
    assert letter_choices(zh) == ("问题：流感的病原体是\nA. 病毒\nB. 细菌\n答案：", ("A", "B"))


def test_a_question_that_does_not_fit_is_missing_and_told(tmp_path: Path):
    cut = LogLikelihood(total=-1.0, tokens=1, greedy=True, truncated=3)
    model = ScriptedModel(lambda prompt, text: cut if "fever" in prompt else -1.0)
    result = run(write(tmp_path / "q.jsonl", FEVER, DRUG), model)
    scores = {case.id: case.scores for case in result.cases}
    assert all(isinstance(score, Missing) for score in scores["fever"]) and len(scores["fever"]) == 3
    assert all(isinstance(score, Score) for score in scores["drug"])
    assert result.notes == ("1 of 2 cases have no accuracy: the question does not fit into the model.",)


def test_a_model_without_likelihoods_has_no_scores_and_a_note(tmp_path: Path):
    def refuse(prompt: object, text: str) -> float:
        raise ConfigError("A model behind a URL gives no likelihoods")

    result = run(write(tmp_path / "q.jsonl", FEVER, ROLE), ScriptedModel(refuse))
    assert [len(case.scores) for case in sorted(result.cases, key=lambda case: case.id)] == [3, 2] and not values(
        result, "accuracy"
    )
    assert "URL" in result.notes[0]


def test_questions_with_several_right_answers_are_left_out_and_counted(tmp_path: Path):
    several = {**FEVER, "id": "several", "options": {"A": "x", "B": "y", "C": "z"}, "answer": "AC"}
    suite = MultipleChoice(write(tmp_path / "q.jsonl", FEVER, several))
    assert [question.id for question in suite.file.questions] == ["fever"] and suite.file.several_answers == 1
    assert "1 questions of the file have several right answers" in run(tmp_path / "q.jsonl", ScriptedModel()).notes[0]


def test_gzip_and_the_same_questions_in_any_order(tmp_path: Path):
    rows = [{**FEVER, "id": str(number)} for number in range(20)]
    packed = tmp_path / "q.jsonl.gz"
    packed.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in reversed(rows)).encode()))
    drawn = [{case.id for case in run(path, ScriptedModel(), n=5).cases} for path in (packed, write(tmp_path / "q.jsonl", *rows))]
    assert drawn[0] == drawn[1] and len(drawn[0]) == 5


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"question": " "}, "'question' is not a text"),
        ({"options": {"A": "x"}}, "'options' is not a list or an object of two or more texts"),
        ({"options": None}, "'options' is not"),
        ({"options": {"A": "x", "B": 5}}, "option B is not a text"),
        ({"answer": "C"}, "'answer' names none of the options"),
        ({"answer": "AA"}, "'answer' names none of the options"),
        ({"answer": None}, "'answer' names none of the options"),
        ({"answer_index": 2}, "'answer_index' is not a number from 0 to 1"),
        ({"answer_index": True}, "'answer_index' is not a number"),
        ({"contexts": [3]}, "'contexts' is not a list of texts"),
        ({"id": "fever"}, "duplicate id"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line_and_never_quoted(tmp_path: Path, change: dict[str, object], problem: str):
    path = write(tmp_path / "q.jsonl", FEVER, {**FEVER, "id": "other", "question": "SECRET", **change})
    with pytest.raises(InputError, match=f"q.jsonl, line 2: {problem}") as error:
        MultipleChoice(path)
    assert "SECRET" not in str(error.value)


def test_no_file_and_no_questions_say_what_to_do(tmp_path: Path):
    with pytest.raises(InputError, match="multiple_choice=FILE"):
        MultipleChoice(None)
    with pytest.raises(InputError, match="no multiple-choice questions"):
        MultipleChoice(write(tmp_path / "q.jsonl"))


def test_through_the_command_line_with_baselines_and_the_line_of_a_bad_row(workspace: Path, command_line: Callable[..., Any]):
    base = tiny_model(workspace / "models/full/base")
    path = write(workspace / "q.jsonl", FEVER, DRUG, ROLE, ZH)
    words = ["--home", workspace, "eval", f"--model={base}", "--suite", f"multiple_choice={path}", "--name", "r"]
    done = command_line(*words)
    assert done.code == 0 and "random" in done.out and "majority" in done.out, done.err
    report = json.loads((workspace / "reports/eval/r/eval_report.json").read_text(encoding="utf-8"))
    assert {name: value["n"] for name, value in report["results"][0]["metrics"]["multiple_choice"].items()} == {
        "accuracy": 4,
        "accuracy_norm": 4,
        "accuracy_letter": 3,
    }
    assert "subject:Drugs" in report["results"][0]["by_stratum"]["multiple_choice"]
    write(path, FEVER, {**DRUG, "answer_index": 9})
    refused = command_line(*words)
    assert refused.code == 3 and "q.jsonl, line 2" in refused.err
