"""Every fault of the catalogue: no traceback, no invented score, nothing wrong in the cache, no false booking, a line in the log."""

import importlib.util
import sys
from pathlib import Path

import pytest

from medloop.teacher.key_guard import KeyGuard
from medloop.testing.teacher_faults import CATALOGUE

_SPEC = importlib.util.spec_from_file_location("_fault_trial", Path(__file__).parents[2] / "benchmarks/_fault_trial.py")
assert _SPEC is not None and _SPEC.loader is not None
trial = importlib.util.module_from_spec(_SPEC)
sys.modules["_fault_trial"] = trial
_SPEC.loader.exec_module(trial)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_fault_of_the_service_ends_in_a_reason_and_an_honest_bill(name: str, tmp_path: Path) -> None:
    assert trial.try_fault(name, tmp_path).problems == []


def test_the_catalogue_has_sixty_faults_and_more() -> None:
    assert len(CATALOGUE) >= 60


def test_ordinary_words_and_hashes_are_not_taken_for_the_key() -> None:
    guard = KeyGuard(trial.KEY)
    assert not guard.is_repeated_in("Take 500 mg of paracetamol, sk-7f3c is a model name.", "0123456789abcdef" * 4)
    assert not KeyGuard("k").is_repeated_in("knock") and not KeyGuard("").is_repeated_in("")
