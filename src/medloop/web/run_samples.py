"""What a run's page shows beside its curves: some answers before and after, and what the run has cost so far.

Answers are those of the held-out checks (`held_out.jsonl` of the run). They were written without identifiers; each text is
looked at again before it is shown, and a sample with one that cannot be released is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.store.files import jsonl
from medloop.train.runs.teacher_use import Asked, TeacherUse, paid_use

HELD_OUT = "held_out.jsonl"
SHOWN = 4


class SampleAnswer(NamedTuple):
    """One held-out question with the answers of the first and of the last check; `after` is None with one check alone."""

    question: str
    before: str
    reward_before: float | None
    after: str | None
    reward_after: float | None


class RunSamples(NamedTuple):
    """`first` and `last` are the iterations of the two checks."""

    first: int
    last: int
    rows: tuple[SampleAnswer, ...]


class RunCost(NamedTuple):
    """`teacher`: requests, tokens and dollars that this run paid for; None where no teacher was asked."""

    minutes: float
    answers: int
    tokens: int
    teacher: TeacherUse | None = None


def samples_of(folder: Path) -> RunSamples | None:
    """The same questions at the first and the last held-out check of a run; None before the first one."""
    path = folder / HELD_OUT
    if not path.is_file():
        return None
    state = path.stat()
    return _samples(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _samples(path: Path, mtime_ns: int, size: int) -> RunSamples | None:
    """Of one state of the file: an open page asks every few seconds, and a check comes rarely."""
    checks: dict[int, dict[str, Mapping[str, Any]]] = {}
    for row in jsonl.read(path):
        checks.setdefault(int(row["iter"]), {}).setdefault(str(row["prompt_id"]), row)
    if not checks:
        return None
    first, last = min(checks), max(checks)
    rows = tuple(_rows(checks[first], checks[last] if last != first else {}))
    return RunSamples(first, last, rows) if rows else None


def _rows(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> Iterator[SampleAnswer]:
    shown = 0
    for prompt_id in _most_changed_first(before, after) if after else before:
        if shown == SHOWN:
            return
        old, new = before[prompt_id], after.get(prompt_id)
        scrubber = Scrubber()
        with suppress(Unscrubbable):
            yield SampleAnswer(
                scrubber.release(old["question"]), scrubber.release(old["answer"]), old.get("reward"),
                None if new is None else scrubber.release(new["answer"]), None if new is None else new.get("reward"),
            )  # fmt: skip
            shown += 1


def _most_changed_first(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """In turn the question whose reward rose most and the one whose reward fell most; those without a reward come last."""
    change = {
        name: after[name]["reward"] - row["reward"]
        for name, row in before.items()
        if name in after and row.get("reward") is not None and after[name].get("reward") is not None
    }
    rising = sorted(change, key=lambda name: -change[name])
    turns = [name for pair in zip(rising, reversed(rising), strict=True) for name in pair]
    return list(dict.fromkeys([*turns, *(name for name in before if name in after)]))


def cost_of(lines: Sequence[Mapping[str, Any]], asked: Asked | None = None) -> RunCost | None:
    """From the first to the last line of the metrics, with the answers that were sampled and their tokens; pauses count, too.
    `asked`: what the teacher's log has of the run."""
    if not lines:
        return None
    times = [datetime.fromisoformat(str(line["ts"]).replace("Z", "+00:00")) for line in lines]
    extras = [line.get("extra") or {} for line in lines]
    summaries = [summary for extra in extras if "answers" in (summary := extra.get("held_out") or extra)]
    answers = sum(int(summary["answers"]) for summary in summaries)
    tokens = sum(int(summary["answers"]) * float(summary.get("length") or 0) for summary in summaries)
    return RunCost((max(times) - min(times)).total_seconds() / 60, answers, round(tokens), paid_use(asked, lines))
