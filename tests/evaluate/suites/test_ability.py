"""General ability: instructions that a program can check, the language of answers, refusals, and the likelihood of held text."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import Missing, Score
from medloop.contracts.suite import LogLikelihood, SuiteConfig, SuiteResult
from medloop.errors import ConfigError, InputError
from medloop.evaluate.suites.ability import Ability, AbilityCase
from medloop.evaluate.suites.instructions import InstructionCheck
from medloop.testing.models import tiny_model
from medloop.testing.scripted_model import ScriptedModel

LIST = {
    "id": "list",
    "kind": "instruction",
    "language": "en",
    "question": "Name two fruits as a list.",
    "checks": [{"check": "items", "count": 2}],
}
WASH = {"id": "wash", "kind": "harmless", "language": "zh", "question": "怎么洗衣服？"}
TEXT = {"id": "text", "kind": "text", "language": "en", "text": "one two three four"}


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def run(path: Path | None, model: ScriptedModel) -> SuiteResult:
    return Ability(path, lambda answer: answer.rpartition("</think>")[2]).run(model, SuiteConfig(n=200), lambda done, total: None)


def scores(result: SuiteResult) -> dict[tuple[str, str], float | str]:
    return {(case.id, s.name): s.value if isinstance(s, Score) else s.reason for case in result.cases for s in case.scores}


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ({"check": "items", "count": 2}, "Sure:\n- apples\n- pears", "- apples"),
        ({"check": "items", "count": 2}, "1. 苹果\n2、梨", "苹果和梨"),
        ({"check": "sentences", "count": 2}, "It rains. It is 3.5 degrees!", "It rains."),
        ({"check": "sentences", "count": 1}, "天在下雨，很冷。", "天在下雨。很冷。"),
        ({"check": "paragraphs", "count": 2}, "one\n\ntwo", "one\ntwo"),
        ({"check": "at_most", "count": 3}, "three short words", "now there are four"),
        ({"check": "at_most", "count": 4}, "四个汉字。", "一共五个字"),
        ({"check": "at_least", "count": 3}, "three short words", "two words"),
        ({"check": "contains", "words": ["Boat", "wind"]}, "The boat and the wind", "The boat"),
        ({"check": "without", "words": ["动物"]}, "一只狗", "狗是动物"),
        ({"check": "only", "words": ["yes", "no"]}, "**Yes.**", "Yes, of course"),
        ({"check": "begins", "words": ["A calendar"]}, "A calendar shows", "The calendar"),
        ({"check": "ends", "words": ["下次再见。"]}, "谢谢。下次再见。", "下次再见。谢谢。"),
        ({"check": "json", "keys": ["name", "age"]}, '```json\n{"name": "x", "age": 3}\n```', '{"name": "x"}'),
        ({"check": "lower"}, "all lower case", "Not lower"),
        ({"check": "upper"}, "ALL UPPER", "Not upper"),
        ({"check": "language", "language": "zh"}, "天空是蓝色的", "The sky is blue"),
    ],
)
def test_every_check_tells_good_from_bad_and_an_empty_answer_is_bad(check: dict[str, object], good: str, bad: str):
    instruction = InstructionCheck.model_validate(check)
    assert instruction.holds(good) and not instruction.holds(bad) and not instruction.holds(" \n")


def test_scores_of_a_good_and_of_a_broken_model(tmp_path: Path):
    path = write(tmp_path / "cases.jsonl", LIST, WASH, TEXT)
    good = ScriptedModel(
        lambda p, t: -2.0, lambda q: "<think>我想想</think>- apples\n- pears" if "fruits" in q else "先加洗衣液，再放进洗衣机。"
    )
    assert scores(run(path, good)) == {
        ("list", "instruction"): 1.0, ("list", "language_mixing"): 0.0, ("wash", "refusal"): 0.0, ("wash", "language_mixing"): 0.0,
        ("text", "token_probability"): pytest.approx(math.exp(-0.5)),  # -2 over 4 tokens
    }  # fmt: skip
    broken = ScriptedModel(
        lambda p, t: -40.0, lambda q: "抱歉，我无法回答这个问题。" if "fruits" in q else "I'm sorry, but I cannot help with that."
    )
    assert scores(run(path, broken)) == {
        ("list", "instruction"): 0.0, ("list", "language_mixing"): 1.0, ("wash", "refusal"): 1.0, ("wash", "language_mixing"): 1.0,
        ("text", "token_probability"): pytest.approx(math.exp(-10)),
    }  # fmt: skip


def test_the_note_names_the_perplexity_over_all_tokens(tmp_path: Path):
    """4 tokens with -4 in all, and 2 tokens with -5: exp(9 / 6); not the mean of exp(1) and exp(2.5)."""
    short = {**TEXT, "id": "zh", "language": "zh", "text": "两 个"}
    model = ScriptedModel(lambda prompt, text: -4.0 if "one" in text else -5.0)
    (note,) = run(write(tmp_path / "cases.jsonl", TEXT, short), model).notes
    assert note == f"Perplexity on held text: {math.exp(1.5):.2f} (en {math.exp(1):.2f}, zh {math.exp(2.5):.2f}; 6 tokens)."


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        ("I can't help with that.", 1), ("I'm unable to answer medical questions.", 1), ("As an AI, I have no opinion.", 1),
        ("很抱歉，这个问题我无法回答。", 1), ("作为人工智能，我不便评论。", 1), ("", 1),
        ("I'm sorry to hear that. Soak it in cold water.", 0), ("You cannot remove it with hot water; use salt.", 0),
        ("I can't stress this enough: drink water.", 0), ("如果无法洗掉，可以用盐。", 0), ("建议去医院检查。", 0),
    ],
)  # fmt: skip
def test_a_refusal_is_told_from_an_answer(tmp_path: Path, answer: str, refused: int):
    result = run(write(tmp_path / "cases.jsonl", WASH), ScriptedModel(says=lambda question: answer))
    assert scores(result)["wash", "refusal"] == refused


def test_answers_without_a_language_are_not_judged_by_it(tmp_path: Path):
    case = {**LIST, "checks": [{"check": "json", "keys": ["名"]}], "language": "zh"}
    number = {**LIST, "id": "number", "checks": [{"check": "only", "words": ["7"]}]}
    result = run(write(tmp_path / "cases.jsonl", case, number), ScriptedModel(says=lambda question: "7"))
    assert {name for _, name in scores(result)} == {"instruction"}


def test_a_model_without_likelihoods_is_examined_by_its_answers(tmp_path: Path):
    def refuse(prompt: object, text: str) -> float:
        raise ConfigError("A model behind a URL gives no likelihoods")

    result = run(write(tmp_path / "cases.jsonl", WASH, TEXT), ScriptedModel(refuse, lambda question: "用冷水洗。"))
    by_id = {case.id: case.scores[0] for case in result.cases}
    assert isinstance(by_id["text"], Missing) and "URL" in by_id["text"].reason and isinstance(by_id["wash"], Score)
    assert "URL" in result.notes[0]


def test_texts_and_questions_that_do_not_fit_are_missing(tmp_path: Path):
    cut = LogLikelihood(total=-1.0, tokens=3, greedy=False, truncated=1)
    result = run(write(tmp_path / "cases.jsonl", TEXT, WASH), ScriptedModel(lambda p, t: cut, lambda question: None))
    assert all(isinstance(score, Missing) for case in result.cases for score in case.scores)


def test_the_bundled_cases_are_whole_and_in_both_languages():
    cases = Ability(None, str).cases
    kinds = {(case.kind, case.language) for case in cases}
    assert kinds == {(kind, language) for kind in ("text", "instruction", "harmless") for language in ("zh", "en")}
    assert len(cases) == 112 and {check.check for case in cases for check in case.checks} == set(
        InstructionCheck.model_fields["check"].annotation.__args__
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "poem"}, "kind"), ({"checks": []}, "checks"), ({"question": None}, "needs a question"),
        ({"checks": [{"check": "items"}]}, "needs count"), ({"id": "wash"}, "duplicate id"), ({"more": 1}, "more"),
    ],
)  # fmt: skip
def test_a_bad_case_is_named_by_file_and_line(tmp_path: Path, change: dict[str, object], problem: str):
    path = write(tmp_path / "cases.jsonl", WASH, {**LIST, **change})
    with pytest.raises(InputError, match=f"cases.jsonl, line 2: .*{problem}"):
        Ability(path, str)


def test_a_case_of_text_has_no_checks():
    with pytest.raises(ValueError, match="only if"):
        AbilityCase.model_validate({**TEXT, "checks": LIST["checks"]})


def test_through_the_command_line_on_the_bundled_cases(workspace: Path, command_line: Callable[..., Any]):
    base = tiny_model(workspace / "models/full/base")
    done = command_line(
        "--home", workspace, "eval", f"--model={base}", "--suite", "ability", "--n", "24", "--max-new-tokens", "4", "--name", "r"
    )
    assert done.code == 0, done.err
    report = json.loads((workspace / "reports/eval/r/eval_report.json").read_text(encoding="utf-8"))
    assert set(report["results"][0]["metrics"]["ability"]) == {"token_probability", "instruction", "language_mixing", "refusal"}
    (notes,) = report["suites"][0]["notes"].values()
    assert notes[0].startswith("Perplexity on held text: ")
