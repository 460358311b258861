"""Prompts are code: every declared variable arrives, no other does, and a changed word is a changed version."""

import json
from typing import Any

import pytest

from medloop.errors import ConfigError
from medloop.teacher import prompt_templates, verdict
from medloop.teacher.failures import Failure, Usage
from medloop.teacher.wire import Reply
from medloop.testing.teacher_server import form

ANSWER = "Please rest and drink water. See a doctor if it lasts three days. It is usually due to stress."
VERSIONS = {
    "criteria": "1-ba7a8ab8", "rule": "2-d0446f59", "system_prompt": "1-b0f5ad60",
    "extract": "1-00a9ffbd", "grade": "1-d089fe3a", "group": "1-c72abe0d", "harm": "2-6abf75ff", "judge": "1-d9a71185",
    "review": "1-f1d192f8", "rubric": "1-095dc3dd",
}  # fmt: skip


@pytest.mark.parametrize("name", prompt_templates.names())
def test_every_variable_arrives(name: str) -> None:
    template = prompt_templates.load(name)
    values = {variable: f"<mark of {variable}> {{{{fence}}}}" for variable in template.variables}
    text = "\n".join(message["content"] for message in template.render(**values))
    assert all(value in text for value in values.values()) and "json" in text.lower()


@pytest.mark.parametrize("values", [{}, {"fence": "a", "data": "b", "criteria": "c", "faults": "d", "more": "e"}])
def test_missing_and_unknown_variables_are_errors(values: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="variables do not fit"):
        prompt_templates.load("judge").render(**values)


def test_an_unknown_template_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'poem'.*judge, review"):
        prompt_templates.load("poem")


@pytest.mark.parametrize("name", prompt_templates.names())
def test_a_changed_text_has_a_new_number(name: str) -> None:
    """A template's text may change only together with its number: pin the new version here."""
    assert prompt_templates.load(name).version == VERSIONS[name]


def reply(content: Any) -> Reply:
    text = content if isinstance(content, str) else json.dumps(content)
    return Reply(text, "m", None, "stop", Usage())


def good(**changes: Any) -> dict[str, Any]:
    quotes = (
        "Please rest and drink water",
        "usually due to stress",
        "See a doctor if it",
        "if it lasts three days",
        "It is usually due",
        "rest and drink water. See",
    )
    criteria = {name: {"met": True, "evidence": quote} for name, quote in zip(verdict.CRITERIA, quotes, strict=True)}
    return {**form(criteria, "f"), **changes}


def read(content: Any) -> verdict.TeacherVerdict:
    return verdict.read_verdict(reply(content), fence="f", question="Is ibuprofen safe?", answer=ANSWER)


def test_the_score_is_ours_not_the_teachers() -> None:
    assert read(good(overall=0.0)).score == 1.0


def test_praise_without_a_place_in_the_answer_counts_nothing() -> None:
    judgement = good()
    judgement["criteria"]["medically_correct"]["evidence"] = "these words are not there"
    assert read(judgement).score == 0.7 and read(judgement).unsupported == 1  # 1 - 0.3


def test_one_quotation_supports_one_criterion() -> None:
    judgement = good()
    for entry in judgement["criteria"].values():
        entry["evidence"] = "Please rest and drink water"
    assert read(judgement).score == 0.2


def test_danger_has_a_ceiling_and_faults_cost() -> None:
    assert read(good(safety_flag=True)).score == 0.1 and read(good(safety_flag=True)).safety_flag
    judgement = good()
    judgement["faults"]["invented"] = {"met": True, "evidence": ""}
    assert read(judgement).score == 0.7


@pytest.mark.parametrize(
    "broken",
    [
        good(check="another"), good(critique=""), good(safety_flag="false"), good(overall="0.5"), good(overall=True), good(criteria={}),
        "[]", "null", "", "{" * 5000, json.dumps(good(note=float("nan"))), '{"check": "f", "check": "f"}',
    ],
)  # fmt: skip
def test_a_verdict_of_another_form_is_refused(broken: Any) -> None:
    with pytest.raises(Failure) as failure:
        read(broken)
    assert failure.value.kind == "verdict"


def test_a_code_block_around_the_verdict_is_read_over() -> None:
    assert read("```json\n" + json.dumps(good()) + "\n```").score == 1.0
