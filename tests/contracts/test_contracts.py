"""Contracts: frozen, strict, one canonical form, stable ids."""

import json
import typing
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import medloop.contracts as contracts
from medloop.contracts import (
    Contract,
    Conversation,
    DynamicWeights,
    Feedback,
    IRSConfig,
    JobStatus,
    Message,
    PreferencePair,
    Score,
    TrainRequest,
    uuid7,
)

ALL = [c for c in vars(contracts).values() if isinstance(c, type) and issubclass(c, Contract) and c is not Contract]


@pytest.mark.parametrize("noun", ALL, ids=lambda c: c.__name__)
def test_every_noun_is_frozen_and_refuses_unknown_fields(noun: type[Contract]) -> None:
    assert noun.model_config["frozen"] and noun.model_config["extra"] == "forbid"
    for name, field in noun.model_fields.items():
        assert typing.get_origin(field.annotation) is not list, f"{noun.__name__}.{name}: a list can change, use a tuple"


def test_the_id_is_the_hash_of_the_canonical_form() -> None:
    message = Message(role="user", content="头痛 two days")
    assert message.canonical_json() == '{"content":"头痛 two days","role":"user"}'
    # echo -n '{"content":"头痛 two days","role":"user"}' | sha256sum
    assert message.content_id() == "sha256:8a174f8bd3e626f9c3718d72970e10ee956776c1f471d50fe452b9533d3714d7"


@given(st.text(min_size=1), st.floats(0, 1))
def test_canonical_json_reads_back_to_the_same_value(text: str, value: float) -> None:
    score = Score(name="chain", value=value, reason=text, author="rule", version="1")
    again = Score.from_json(score.canonical_json())
    assert again == score and again.content_id() == score.content_id()


def test_a_field_left_empty_does_not_change_the_id() -> None:
    common = {
        "session_id": "s",
        "agent_name": "a",
        "user_query": "q",
        "agent_response": "r",
        "feedback_id": "f",
        "timestamp": datetime.now(UTC),
    }
    assert Feedback(rating=5, **common).content_id() == Feedback(rating=5, comments=None, **common).content_id()


def test_nan_is_not_a_score() -> None:
    with pytest.raises(ValidationError):
        Score(name="x", value=float("nan"), reason="r", author="a", version="1")


def test_nan_inside_free_json_has_no_canonical_form() -> None:
    pair = PreferencePair(prompt="q", chosen="a", rejected="b", metadata={"margin": float("nan")})
    with pytest.raises(ValueError, match="JSON compliant"):
        pair.canonical_json()


def test_times_need_a_zone_and_are_kept_in_utc() -> None:
    common = {"session_id": "s", "agent_name": "a", "user_query": "q", "agent_response": "r", "rating": 1, "feedback_id": "f"}
    with pytest.raises(ValidationError, match="zone"):
        Feedback(timestamp=datetime(2026, 1, 1), **common)
    east = datetime(2026, 1, 1, 8, tzinfo=timezone(timedelta(hours=8)))
    assert '"timestamp":"2026-01-01T00:00:00Z"' in Feedback(timestamp=east, **common).canonical_json()


@pytest.mark.parametrize("roles", [("assistant",), ("user", "user"), ("system", "assistant"), ("user", "assistant", "assistant")])
def test_roles_must_alternate(roles: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match=r"message \d has the role \w+, expected"):
        Conversation(messages=tuple(Message(role=r, content="x") for r in roles))


def test_feedback_must_say_something() -> None:
    with pytest.raises(ValidationError, match="feedback needs"):
        Feedback(session_id="s", agent_name="a", user_query="q", agent_response="r")


def test_ids_made_later_sort_later() -> None:
    ids = [uuid7() for _ in range(2000)]
    assert len(set(ids)) == 2000 and [i[:13] for i in ids] == sorted(i[:13] for i in ids)
    assert all(i[14] == "7" and i[19] in "89ab" for i in ids)


def test_the_request_and_status_of_the_training_document_are_read_to_the_letter() -> None:
    request = {
        "stage": "IRS", "model_id": "Qwen/Qwen2.5-1.5B-Instruct", "n_questions": 100, "top_k": 3,
        "irs_config": {
            "n_iterations": 3, "n_candidates": 4, "batch_size": 2, "learning_rate": 2e-5, "max_new_tokens": 256, "load_in_4bit": True,
            "dw_config": {"history_window": 5, "temperature": 2.0, "initial_weights": {"rel": 1.0, "faith": 1.0, "conc": 0.5}},
        },
    }  # fmt: skip
    assert TrainRequest.model_validate(request).irs_config == IRSConfig(dw_config=DynamicWeights())
    status = {
        "job_id": "train_20260203T120000Z", "stage": "IRS", "state": "running",
        "detail": {
            "current_iteration": 2, "total_iterations": 3, "current_phase": "SCORING", "phase_progress": 45.0,
            "metrics": {
                "avg_reward": 2.45,
                "reward_breakdown": {"rel": 0.90, "faith": 0.85, "conc": 0.70},
                "current_weights": {"rel": 1.05, "faith": 1.20, "conc": 0.42},
            },
            "runtime": {"device": "cuda", "unsloth_available": True, "gpu_mem_used": 6800000000},
        },
    }  # fmt: skip
    assert json.loads(JobStatus.model_validate(status).canonical_json()) == status
