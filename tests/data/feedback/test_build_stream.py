"""The build in bounded memory: no byte depends on the size of a batch, a kill leaves nothing, an erasure meanwhile is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from medloop.contracts import Contract
from medloop.data.feedback import build as from_feedback
from medloop.data.feedback import rows, select
from medloop.data.feedback.build import FeedbackConfig, build
from medloop.data.feedback.select import CachedScrubber
from medloop.errors import BusyError
from medloop.loop.erasure import erase_records
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.privacy.phi.scrub import Scrubber
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import verify_artifact
from medloop.store.records import crud, erasing, lineage
from medloop.testing.feedback import make_correction, make_preference, make_thumb

BENCHMARK = Path(__file__).parents[3] / "benchmarks/feedback_build.py"
KILLED = """
import os, signal, sys
from contextlib import contextmanager
from medloop.data.feedback.build import FeedbackConfig, build
from medloop.settings import Settings
from medloop.store.db import open_store
@contextmanager
def progress(phase, total):
    yield lambda count: os.kill(os.getpid(), signal.SIGKILL) if phase == sys.argv[2] else None
with open_store(Settings(home=sys.argv[1])) as store:
    build(store, FeedbackConfig(), seed=7, actor="test", progress=progress)
"""


def make_records() -> list[Contract]:
    records: list[Contract] = [make_thumb(n % 9, f"answer {n % 4} {n % 9}", n % 3 > 0, feedback_id=f"fb_{n}") for n in range(40)]
    records += [make_preference(n, f"x {n}", f"y {n}", "a") for n in range(9)]
    return records + [make_correction(n, f"answer 1 {n}", f"better {n}", reason=f"Reason {n}.") for n in range(9)]


def test_neither_pages_nor_batches_change_a_byte(sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(sqlite_settings) as store:
        crud.add(store, make_records(), actor="test")
        whole = build(store, FeedbackConfig(), seed=7, actor="test")
        monkeypatch.setattr(select, "BATCH", 1)
        monkeypatch.setattr(crud, "PAGE_SIZE", 2)
        monkeypatch.setattr(crud.page, "__kwdefaults__", {**crud.page.__kwdefaults__, "limit": 2})
        assert build(store, FeedbackConfig(), seed=7, actor="test").sha256 == whole.sha256


def test_what_was_said_about_a_question_is_put_together_whatever_came_between(store: Store) -> None:
    records = [
        make_thumb(1, "rest", True),
        make_thumb(2, "sleep", True),
        make_thumb(1, "run", False),
        make_thumb(3, "walk", True),
        make_thumb(2, "jump", False),
    ]
    crud.add(store, records, actor="test")
    done = build(store, FeedbackConfig(), seed=7, actor="test")
    pairs = {(row["chosen"], row["rejected"]) for row in jsonl.read(done.folder / "preferences.jsonl")}
    assert pairs == {("rest", "run"), ("sleep", "jump")}


@pytest.mark.parametrize("often", ["please", "by then"])
def test_of_near_copies_the_one_that_more_records_speak_for_stays(sqlite_settings: Settings, often: str) -> None:
    advice = (
        "Keep the leg up, cool it with a wet cloth, wear wide shoes, walk a little every hour and come back in a fortnight {}."
    )
    records = [make_correction(1, "bad", advice.format(word)) for word in ("please", "by then", often)]
    with open_store(sqlite_settings) as store:
        crud.add(store, records, actor="test")
        done = build(store, FeedbackConfig(test_share=0), seed=7, actor="test")
    (row,) = jsonl.read(done.folder / "sft_train.jsonl")
    assert row["conversation"]["messages"][-1]["content"] == advice.format(often) and len(row["meta"]["records"]) == 2


def test_a_kill_leaves_nothing_half_published_and_the_next_build_is_whole(sqlite_settings: Settings) -> None:
    home = sqlite_settings.home
    with open_store(sqlite_settings) as store:
        crud.add(store, make_records(), actor="test")
    died = subprocess.run([sys.executable, "-c", KILLED, str(home), "Writing"], check=False)
    assert died.returncode == -9
    assert not (home / "data/feedback/feedback").exists() and not list((home / "data/preferences").glob("*.jsonl"))
    with open_store(sqlite_settings) as store:
        assert not lineage.datasets_of(store, ["fb_1"])
        assert build(store, FeedbackConfig(), seed=7, actor="test").new_records == 58
    assert [path.name for path in (home / "data/feedback").iterdir()] == ["feedback"]


@pytest.mark.parametrize("phase", ["Making rows", "Writing"])
def test_what_is_erased_meanwhile_is_not_published(sqlite_settings: Settings, phase: str) -> None:
    with open_store(sqlite_settings) as store:
        crud.add(store, make_records(), actor="test")

        def erase() -> None:
            erase_records(store, ErasureRequest("asked", records=("fb_1",)), actor="test")

        with pytest.raises(BusyError, match="erased while"):
            build(store, FeedbackConfig(), seed=7, actor="test", progress=during(phase, erase))
        assert not (sqlite_settings.home / "data/feedback/feedback").exists()
        again = build(store, FeedbackConfig(), seed=7, actor="test")
        assert "fb_1" not in lineage.records_of(store, again.sha256)


def test_an_erasure_that_comes_after_the_last_check_waits_for_the_dataset(
    sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would look for copies, find none, and the dataset with the record would be put in place after it."""
    check, began, proofs = from_feedback._check_none_erased, threading.Event(), []
    remove = erasing.remove_rows

    def erase() -> None:
        with open_store(sqlite_settings) as other:
            proofs.append(erase_records(other, ErasureRequest("asked", records=("fb_1",)), actor="test"))

    thread = threading.Thread(target=erase)

    def last_check(store: Store, draft: Any) -> None:
        check(store, draft)
        thread.start()
        assert not began.wait(1.0), "the erasure did not wait"

    monkeypatch.setattr(from_feedback, "_check_none_erased", last_check)
    monkeypatch.setattr(erasing, "remove_rows", lambda *args, **more: began.set() or remove(*args, **more))
    with open_store(sqlite_settings) as store:
        crud.add(store, make_records(), actor="test")
        built = build(store, FeedbackConfig(), seed=7, actor="test")
        thread.join()
        assert began.is_set() and proofs[0].complete and "data/feedback/feedback" in {file["path"] for file in proofs[0].files}
        assert "fb_1" not in lineage.records_of(store, verify_artifact(built.folder).sha256)


def test_the_most_pairs_of_a_question_have_a_bound() -> None:
    assert FeedbackConfig(max_pairs=10_000_000).max_pairs == 10_000_000
    with pytest.raises(ValueError, match="max_pairs"):
        FeedbackConfig(max_pairs=10_000_001)


def during(expected: str, action: Callable[[], object]) -> Any:
    @contextmanager
    def progress(phase: str, total: int) -> Iterator[Callable[[int], None]]:
        if phase == expected:
            action()
        yield lambda count: None

    return progress


def test_a_text_found_clean_is_looked_over_again_only_after_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaner, text = CachedScrubber(), "Rest the knee and drink some water."
    assert cleaner.doubt([text], reviewed=False) is None
    scrubbed: list[str] = []
    monkeypatch.setattr(Scrubber, "scrub", lambda self, text: scrubbed.append(text) or text)
    assert cleaner.scrub([text], Scrubber()) == [text] and scrubbed == []
    known = Scrubber()
    known.persons.add("Rest", "[NAME_1]")
    assert cleaner.scrub([text], known) == [text] and scrubbed == [text]
    assert cleaner.scrub(["Never seen before."], Scrubber()) and scrubbed[1:] == ["Never seen before."]


@pytest.mark.parametrize("text", ["患者王芳，手机13800138000", "Please ring 13800138000 today.", "See [NAME_1] about it."])
def test_a_text_with_anything_in_it_is_never_taken_for_clean(text: str) -> None:
    cleaner, ours, theirs = CachedScrubber(), Scrubber(), Scrubber()
    cleaner.doubt([text, text], reviewed=False)
    assert cleaner.scrub([text], ours) == [theirs.scrub(text)]
    assert ours.counts == theirs.counts  # placeholders that a text brings along keep their numbers


def test_a_thousand_answers_to_one_question_do_not_make_a_million_pairs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_RATED", 4)
    rated = [make_thumb(1, f"answer {n}", n % 2 == 0) for n in range(20)]
    crud.add(store, [*rated, make_thumb(1, "answer 3", False)], actor="test")
    done = build(store, FeedbackConfig(), seed=7, actor="test")
    pairs = list(jsonl.read(done.folder / "preferences.jsonl"))
    assert len(pairs) == 8 and done.card.drops["pairs"] == {"too_many": 8}  # 4 liked x 4 disliked
    assert "answer 3" in {row["rejected"] for row in pairs}  # two people spoke about it


@pytest.mark.slow
def test_a_record_costs_less_than_three_kilobytes(tmp_path: Path) -> None:
    grown = {}
    for count in (4_000, 12_000):
        out = tmp_path / f"{count}.json"
        subprocess.run([sys.executable, BENCHMARK, "--records", str(count), "--out", out], check=True, capture_output=True)
        grown[count] = json.loads(out.read_text(encoding="utf-8"))["growth_mib"]
    assert (grown[12_000] - grown[4_000]) * 2**20 / 8_000 < 3_072
