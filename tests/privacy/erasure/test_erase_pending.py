"""An erasure that was left half done: whoever comes next finishes it, and gets an answer to their own wish alone."""

from __future__ import annotations

import pytest

from medloop.errors import InputError
from medloop.loop.erasure import erase_records
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure import erase
from medloop.privacy.erasure.contracts import ErasureProof, ErasureRequest
from medloop.privacy.erasure.erase import check_known, reports
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import crud
from medloop.testing.canary import told, traces_of
from medloop.testing.feedback import make_thumb


@pytest.fixture
def half_done(sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """pat-1 was to be erased, and the process died after the journal; pat-2 is here, too."""
    with open_store(sqlite_settings) as store:
        for who in ("pat-1", "pat-2"):
            feedback = make_thumb(1, "sleep", True, query=told(who), subject=subject_of(store, who), feedback_id=f"fb_{who}")
            crud.add(store, [feedback], actor="test")
        with monkeypatch.context() as patch:
            patch.setattr(erase, "carry_out", lambda *args: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                erased(store, "pat-1")
    return sqlite_settings


def erased(store: Store, who: str) -> ErasureProof:
    return erase_records(store, ErasureRequest("asked", who), actor="user:li")


def test_nobody_gets_the_proof_of_somebody_else(half_done: Settings) -> None:
    with open_store(half_done) as store:
        with pytest.raises(InputError, match="holds nothing about that subject"):
            erased(store, "typo-999")
        assert not list(reports(store).glob("*.pending"))  # and yet it was finished
        mine, other = erased(store, "pat-1"), erased(store, "pat-2")
        assert mine.rows == other.rows == {"rlhf_feedback": 1} and mine.erasure_id != other.erasure_id
        assert (mine.subject, other.subject) == (subject_of(store, "pat-1"), subject_of(store, "pat-2"))
    assert traces_of(half_done.home) == []


def test_a_wish_is_known_by_the_journal_of_that_person_alone(half_done: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(half_done) as store:
        monkeypatch.setattr(erase.erasing, "find_by_subject", lambda *args: {})  # the rows went, the proof is not there yet
        check_known(store, ErasureRequest("asked", "pat-1"))
        for stranger in ("typo-999", "pat-2"):
            with pytest.raises(InputError, match="holds nothing"):
                check_known(store, ErasureRequest("asked", stranger))
