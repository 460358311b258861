"""Thumbs: every shape of a line, what is skipped and counted, what is refused by line; and how KTO's batches are mixed."""

import json
from pathlib import Path

import pytest

from medloop.contracts import Feedback
from medloop.errors import InputError
from medloop.models.load import load_tokenizer
from medloop.train.examples.batch_order import LabelMixedSampler
from medloop.train.examples.encode_preferences import encode_thumbs, with_mismatched_answers
from medloop.train.examples.pairs import read_pairs, split_by_prompt
from medloop.train.examples.thumbs import count_contradictions, read_thumbs

TURNS = [{"role": "user", "content": "q"}]


def write(path: Path, rows: list) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" if isinstance(row, dict) else row.canonical_json() + "\n" for row in rows))
    return path


def feedback(**more) -> Feedback:
    given = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "a", "consent": ("training",)}
    return Feedback(**{**given, **more})


@pytest.mark.parametrize("liked", [True, False])
def test_every_shape_of_a_line_is_the_same_thumb(tmp_path: Path, liked: bool):
    rows = [
        {"prompt": "q", "completion": "a", "label": liked},
        {"question": "q", "answer": "a", "label": int(liked), "id": 7},
        {"messages": TURNS, "answer": "a", "feedback_type": "positive" if liked else "negative"},
        {"messages": [*TURNS, {"role": "assistant", "content": "a"}], "rating": 4 if liked else 2},
        {"prompt": TURNS, "completion": [{"role": "assistant", "content": "a"}], "thumb": "up" if liked else "down"},
        feedback(thumb="up" if liked else "down", rating=5 if liked else 1),
    ]
    result = read_thumbs(write(tmp_path / "t.jsonl", rows))
    assert len(result.thumbs) == 6 and len(set(result.thumbs)) == 1 and result.thumbs[0].liked is liked
    assert not result.skipped


def test_a_pair_is_two_thumbs(tmp_path: Path):
    choice = {"prompt": "q", "response_a": "bad", "response_b": "good", "preferred": "b"}
    result = read_thumbs(write(tmp_path / "t.jsonl", [{"prompt": "q", "chosen": "good", "rejected": "bad"}, choice]))
    assert [(t.answer, t.liked) for t in result.thumbs] == [("good", True), ("bad", False)] * 2


def test_equal_gives_nothing_and_bad_or_harmful_answers_are_thumbs_down(tmp_path: Path):
    answers = {"prompt": "q", "response_a": "smoke", "response_b": "drink"}
    rows = [answers | {"preferred": "tie"}, answers | {"preferred": "both_bad"}, answers | {"preferred": "b", "critical": ["b"]}]
    path = write(tmp_path / "t.jsonl", [*rows, {"prompt": "q", "chosen": "good", "rejected": "bad"}])
    found = read_thumbs(path)
    assert [(t.answer, t.liked) for t in found.thumbs[:-2]] == [("smoke", False), ("drink", False), ("drink", False)]
    assert found.skipped.total() == 1 and [pair.chosen for pair in read_pairs(path)] == ["good"]


def test_what_says_nothing_clear_is_withdrawn_or_not_allowed_is_skipped_and_counted(tmp_path: Path):
    old = feedback(thumb="up")
    rows = [
        old,
        feedback(thumb="down", supersedes=old.feedback_id),
        feedback(rating=3),
        feedback(thumb="up", rating=1),
        feedback(comments="only words"),
        feedback(thumb="up", consent=("evaluation",)),
        feedback(thumb="up", critical=True),
    ]
    result = read_thumbs(write(tmp_path / "t.jsonl", rows))
    assert [thumb.liked for thumb in result.thumbs] == [False, False], "the later word, and the critical one"
    assert dict(result.skipped) == {
        "superseded by a later record": 1,
        "neither good nor bad": 3,
        "without consent to training": 1,
    }


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"prompt": "q", "completion": "secret"}, "none of label, thumb, feedback_type, rating"),
        ({"prompt": "q", "completion": "secret", "label": "maybe"}, "label should be true or false"),
        ({"prompt": "q", "completion": "secret", "rating": 9}, "rating should be a number from 1 to 5"),
        ({"prompt": "q", "completion": " ", "label": True}, "completion should be a text"),
        ({"prompt": "secret", "label": True}, "none of completion, answer, agent_response"),
        ({"completion": "secret", "label": True}, "none of prompt, question, messages"),
        ({"prompt": "q", "chosen": "secret", "rejected": "secret"}, "the same text"),
    ],
)
def test_a_bad_thumb_is_named_with_its_line_and_never_quoted(tmp_path: Path, bad: dict, message: str):
    good = {"prompt": "q", "completion": "a", "label": True}
    with pytest.raises(InputError, match=f"line 2: .*{message}") as caught:
        read_thumbs(write(tmp_path / "t.jsonl", [good, bad]))
    assert "secret" not in str(caught.value)


def test_a_file_without_thumbs_says_why(tmp_path: Path):
    with pytest.raises(InputError, match=r"no thumbs \(1 neither good nor bad"):
        read_thumbs(write(tmp_path / "t.jsonl", [feedback(rating=3)]))
    with pytest.raises(InputError, match="it is empty"):
        read_thumbs(write(tmp_path / "e.jsonl", []))


def thumbs(count: int, path: Path) -> list:
    rows = [{"prompt": f"case {n}", "completion": "word " * (1 + n % 7), "label": n % 3 == 0} for n in range(count)]
    return read_thumbs(write(path, rows)).thumbs


def test_contradictions_are_counted_and_prompts_stay_on_one_side(tmp_path: Path):
    rows = [{"prompt": "q", "completion": "a", "label": label} for label in (True, False)]
    assert count_contradictions(read_thumbs(write(tmp_path / "c.jsonl", rows)).thumbs) == 1
    train, test = split_by_prompt(thumbs(40, tmp_path / "t.jsonl"), 0.25, 1)
    assert len(test) == 10 and not {t.first_question for t in train} & {t.first_question for t in test}


def test_batches_are_fixed_mixed_and_lose_nobody():
    labels = [n < 26 for n in range(101)]  # and the liked ones are the short ones
    order = LabelMixedSampler(list(range(101)), labels, 8, seed=1)
    assert sorted(order) == list(range(101))
    first, order.epoch = list(order), 1
    second = list(order)
    assert first != second and {frozenset(first[start : start + 8]) for start in range(0, 96, 8)} == {
        frozenset(second[start : start + 8]) for start in range(0, 96, 8)
    }
    assert all(1 <= sum(labels[i] for i in batch) <= 3 for batch in order.batches[:-1]), "a quarter is liked"


def test_the_answer_that_measures_the_move_belongs_to_another_prompt_and_fits(tmp_path: Path, small_base: Path):
    labelled = [{"prompt": f"case {n // 3}", "completion": f"{n} " * (1 + n % 9), "label": n % 2 == 0} for n in range(33)]
    read = read_thumbs(write(tmp_path / "t.jsonl", labelled)).thumbs
    rows = encode_thumbs(load_tokenizer(small_base), read, max_length=60)
    order = LabelMixedSampler(rows.lengths, list(rows.table["label"]), 8, seed=1)
    table, answers = with_mismatched_answers(rows, order.batches, max_length=60), list(rows.table["completion_ids"])
    batches = {i: batch for batch in order.batches for i in batch}
    for index, row in enumerate(table):
        kl_ids = row["KL_completion_ids"]
        assert 0 < len(kl_ids) and len(row["prompt_ids"]) + len(kl_ids) <= 60
        owners = [i for i in range(len(answers)) if answers[i][: len(kl_ids)] == kl_ids]
        assert any(rows.items[i].first_question != rows.items[index].first_question for i in owners)
        assert len(batches[index]) == 1 or set(owners) & set(batches[index]) - {index}
