"""The one reader of conversations and answers: every shape people have, gzip, questions joined by id, errors with file and line."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import Record, Sample
from medloop.errors import InputError
from medloop.store.files.answer_lines import Questions, read_answers, read_conversations, read_samples
from medloop.testing.records import make_record

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "My chest hurts."},
    {"role": "assistant", "content": "Since when?"},
    {"role": "user", "content": "For an hour."},
    {"role": "assistant", "content": "Call 120."},
]
ASKED = "My chest hurts.\nFor an hour."


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def dumped(row: Record) -> dict[str, Any]:
    return row.model_dump(mode="json", exclude_none=True)


@pytest.mark.parametrize(
    ("row", "question", "answer"),
    [
        ({"question": "q", "answer": "a"}, "q", "a"),
        ({"prompt": "q", "text": "a"}, "q", "a"),
        ({"user_query": "q", "agent_response": "a"}, "q", "a"),
        ({"query": "q", "response": "a"}, "q", "a"),
        ({"prompt": CHAT[:4], "output": "a"}, ASKED, "a"),
        ({"messages": CHAT}, ASKED, "Call 120."),
        ({"messages": CHAT[:4], "question": ASKED, "answer": "a"}, ASKED, "a"),
        ({"conversation": {"messages": CHAT}}, ASKED, "Call 120."),
        ({"messages": CHAT, "answer": "another"}, ASKED, "another"),
        ({"messages": [CHAT[0]], "question": "q", "answer": "a"}, "q", "a"),
        ({"question": "", "answer": ""}, "", ""),
        ({"question": "q", "answer": "", "finish_reason": "error"}, "q", None),
        ({"question": "q", "finish_reason": "error"}, "q", None),
    ],
)
def test_every_known_shape_is_a_sample(tmp_path: Path, row: dict[str, Any], question: str, answer: str | None) -> None:
    (sample,) = read_samples(write(tmp_path / "a.jsonl", row))
    assert (sample.id, sample.question, sample.answer) == ("1", question, answer)


def test_a_record_a_group_and_passages_are_kept(tmp_path: Path) -> None:
    row = dumped(make_record(1, "q", "a", strata=("emergency",)))
    first, second = read_answers(
        write(tmp_path / "a.jsonl", row, {"id": 7, "question": "q", "answer": "a", "group": 3, "contexts": ["x", "y"]})
    )
    assert first.ids == (row["record_id"],) and first.strata == ("emergency",)
    assert second.sample() == Sample(
        id="7", question="q", answer="a", group="3", context="x\ny", why_missing="the model gave no answer"
    )


def test_an_answer_with_only_an_id_takes_its_question_from_another_file(tmp_path: Path) -> None:
    known = make_record(1, "What now?", "reference", strata=("child",))
    records = write(tmp_path / "records.jsonl", dumped(known), {"id": "chat", "messages": CHAT, "context": "passage"})
    path = write(
        tmp_path / "a.jsonl",
        {"record_id": known.record_id, "text": "a"},
        {"id": "chat", "answer": "b"},
        {"id": "chat", "prompt_id": "p", "question": "mine", "answer": "c"},
    )
    first, second, own = read_answers(path, Questions([records]), unique=False)
    assert (first.question, first.strata) == ("What now?", ("child",))
    assert (second.question, second.context, second.answer) == (ASKED, "passage", "b")
    assert own.question == "mine"


def test_questions_are_read_only_when_they_are_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"question": "q", "answer": "a"})
    assert len(list(read_samples(path, Questions([tmp_path / "nowhere.jsonl"])))) == 1


@pytest.mark.parametrize("read", [read_samples, read_conversations])
def test_a_gzipped_file_is_read_as_any_other(tmp_path: Path, read: Any) -> None:
    plain = write(tmp_path / "a.jsonl", {"id": "x", "question": "q", "answer": "a"}, {"id": "y", "question": "q", "answer": "b"})
    zipped = tmp_path / "a.jsonl.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(read(zipped)) == list(read(plain))
    zipped.write_bytes(zipped.read_bytes()[:-12])
    with pytest.raises(InputError, match=r"a\.jsonl\.gz is a damaged gzip file"):
        list(read(zipped))


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"id": "x", "answer": "secret words"}, "no question.*--questions FILE"),
        ({"id": "x", "messages": [CHAT[0]], "answer": "secret words"}, "no question"),
        ({"id": "x", "question": "secret words"}, "no answer"),
        ({"id": "x", "question": "q", "answer": 5}, "the answer must be text"),
        ({"id": "x", "messages": "secret words"}, "messages must be a list of objects with role and content"),
        ({"id": "x", "messages": [{"role": "user", "content": 5}], "answer": "a"}, "messages must be a list"),
        ({"id": "a", "question": "q", "answer": "a"}, r"duplicate id \(first seen on line 2\)\. Use unique ids; put answers"),
        ("{secret words", "not valid JSON"),
    ],
)
def test_a_bad_line_is_named_without_its_content(tmp_path: Path, row: Any, says: str) -> None:
    path = write(tmp_path / "a.jsonl", "", {"id": "a", "question": "q", "answer": "a"}, row)
    with pytest.raises(InputError, match=rf"a\.jsonl, line 3: .*{says}") as error:
        list(read_samples(path))
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("text", ["", "\n \n"])
@pytest.mark.parametrize("read", [read_samples, read_conversations])
def test_an_empty_file_is_named(tmp_path: Path, text: str, read: Any) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(InputError, match=r"a\.jsonl is empty"):
        list(read(tmp_path / "a.jsonl"))
