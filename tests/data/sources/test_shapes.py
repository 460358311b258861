"""Rows of every known shape become the same messages, and leave again as they came."""

from typing import Any

import pytest
from data_desk import Desk

from medloop.contracts import Conversation, Message, Origin, Record
from medloop.data.sources.shapes import ShapeProblem, fit, is_reviewed, messages_of, to_alpaca, to_sharegpt

TALK = [("user", "头疼三天了"), ("assistant", "睡得好吗？"), ("user", "不好"), ("assistant", "早点睡")]
SHAPED: dict[str, dict[str, Any]] = {
    "messages": {"messages": [{"role": role, "content": text} for role, text in TALK]},
    "sharegpt": {"conversations": [{"from": {"user": "human", "assistant": "gpt"}[role], "value": text} for role, text in TALK]},
    "alpaca": {"instruction": "不好", "input": "", "output": "早点睡", "history": [["头疼三天了", "睡得好吗？"]]},
    "prompt-response": {"prompt": [{"role": r, "content": t} for r, t in TALK[:3]], "completion": [{"role": "assistant", "content": "早点睡"}]},
}  # fmt: skip


def messages(row: dict[str, Any], **mapping: str) -> tuple[str, list[tuple[str, str]]]:
    fitted = fit(row, mapping)
    assert fitted is not None
    return fitted[0].name, messages_of(row, fitted[0].name, fitted[1])


@pytest.mark.parametrize("shape", SHAPED)
def test_each_shape_is_recognised_and_gives_the_same_messages(shape: str) -> None:
    assert messages(SHAPED[shape]) == (shape, TALK)


@pytest.mark.parametrize("row", [*SHAPED.values(), {"Question": "q", "ANSWER": "a"}])
def test_a_system_prompt_is_kept_in_front(row: dict[str, Any]) -> None:
    assert messages(row | {"system": "Be kind."})[1][0] == ("system", "Be kind.")


def test_instruction_and_input_are_one_question_and_reasoning_becomes_a_think_chain() -> None:
    assert messages({"instruction": "Explain", "input": "this", "output": "so"})[1][0] == ("user", "Explain\nthis")
    assert messages({"Question": "q", "Complex_CoT": "why", "Response": "a"})[1][1] == ("assistant", "<think>\nwhy\n</think>\na")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"messages": "hello"}, "'messages' is not a list of messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "without a known role"),
        ({"messages": [{"role": "user", "content": 5}]}, "a message that is not text"),
        ({"question": ["secret"], "answer": "a"}, "'question' is not a text"),
        ({"instruction": "q", "output": "a", "history": [["only one"]]}, "'history' is not a list of"),
    ],
)
def test_a_row_that_does_not_fit_says_why_without_its_content(row: dict[str, Any], problem: str) -> None:
    with pytest.raises(ShapeProblem, match=problem) as error:
        messages(row)
    assert "secret" not in str(error.value)


def test_a_preference_file_is_no_conversation() -> None:
    assert fit(["prompt", "chosen", "rejected"], {}) is None


@pytest.mark.parametrize(
    "row", [{"reviewed": True}, {"reviewed": "yes"}, {"meta": {"reviewed": True}}, {"metadata": {"reviewed": 1}}]
)
def test_reviewed_is_found_in_the_row_or_its_meta(row: dict[str, Any]) -> None:
    assert is_reviewed(row)
    assert not is_reviewed({"reviewed": "no", "meta": "reviewed"})


@pytest.mark.parametrize("writer", [to_sharegpt, to_alpaca])
@pytest.mark.parametrize("system", [[], [("system", "Be kind.")]])
def test_what_is_written_reads_back_as_the_same_messages(writer: Any, system: list[tuple[str, str]]) -> None:
    talk = [*system, *TALK]
    conversation = Conversation(messages=tuple(Message(role=role, content=text) for role, text in talk))  # type: ignore[arg-type]
    record = Record(
        record_id=conversation.content_id(),
        conversation=conversation,
        language="zh",
        strata=("routine",),
        origin=Origin(source="s", line=1),
    )
    assert messages(writer(record))[1] == talk


@pytest.mark.parametrize("to", ["sharegpt", "alpaca"])
def test_an_exported_split_comes_back_with_the_same_record_ids(desk: Desk, to: str) -> None:
    from data_desk import questions

    long = {
        "messages": [{"role": r, "content": f"{t} {i}"} for i, (r, t) in enumerate(TALK)],
        "system": "Be kind.",
        "context": ["Rest helps.", "See a doctor."],
    }
    desk.import_rows("qa", questions(40))
    desk.import_rows("long", [long])
    desk.run("prepare", "--gold", "0", "--red", "0", "--dev", "0", "--test", "0")
    out = desk.home / "out.jsonl"
    assert desk.run("export", "--to", to, "--output", out).out.startswith("41 rows in ")
    before = {record["record_id"]: record.get("context") for record in desk.records("train.jsonl")}
    assert ["Rest helps.", "See a doctor."] in before.values()
    assert "already exists" in desk.run("export", "--to", to, "--output", out).error
    desk.run("import", out, "--name", "again")
    desk.run("prepare", "--source", "again", "--gold", "0", "--red", "0", "--dev", "0", "--test", "0")
    assert {record["record_id"]: record.get("context") for record in desk.records("train.jsonl")} == before
