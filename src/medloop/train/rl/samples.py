"""Answers of a run that people read and the panel compares: some of each step, all of each held-out check; no identifiers.

`samples.jsonl` and `held_out.jsonl` lie in the job's folder and go with the result. A run that goes on cuts what it will write
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from medloop.contracts import Reward, Sample
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.store.files import jsonl
from medloop.train.rl.rollout import Experience

SAMPLES, HELD_OUT = "samples.jsonl", "held_out.jsonl"
KEPT = 4  # answers per step: the best, the worst, and some between

Answers = Sequence[tuple[Sample, Reward]]


def keep_some(folder: Path, step: int, found: Experience) -> None:
    """The best, the worst and some answers between."""
    values, present = found.values()
    order = sorted((at for at in range(len(values)) if present[at]), key=lambda at: (-float(values[at]), at))
    wanted = dict.fromkeys(order[round(n * (len(order) - 1) / (KEPT - 1))] for n in range(KEPT)) if order else {}
    write(folder / SAMPLES, step, found, {at: {} for at in wanted})


def write(path: Path, step: int, found: Experience, rows: Mapping[int, Mapping[str, Any]]) -> None:
    """Answers by place, each with what else is to be said of it; one whose identifiers cannot be taken out is left out."""
    lines = []
    for at, more in rows.items():
        scrubber = Scrubber()
        with suppress(Unscrubbable):
            said = {"question": scrubber.scrub(found.questions[at].asked), "answer": scrubber.scrub(found.texts[at])}
            lines.append({"iter": step, "prompt_id": found.groups[at], **said, "reward": found.rewards[at].value, **more})
    if lines:
        jsonl.append(path, lines)


def keep_check(folder: Path, step: int, found: Experience) -> None:
    """Every answer of a held-out check, with the parts of its reward."""
    parts = {at: {"scored": reward.model_dump(mode="json", exclude_none=True)} for at, reward in enumerate(found.rewards)}
    write(folder / HELD_OUT, step, found, parts)


def checks(folder: Path) -> dict[int, Answers]:
    """The answers of each held-out check, by step."""
    found: dict[int, list[tuple[Sample, Reward]]] = {}
    for row in jsonl.read(folder / HELD_OUT):
        sample = Sample(id=row["prompt_id"], question=row["question"], answer=row["answer"])
        found.setdefault(row["iter"], []).append((sample, Reward.model_validate(row["scored"])))
    return dict(found)


def cut(folder: Path, step: int) -> None:
    """Keep what was written up to a step; -1 keeps nothing."""
    for path in (folder / SAMPLES, folder / HELD_OUT):
        if path.is_file():
            jsonl.write(path, [row for row in jsonl.read(path) if row["iter"] <= step])


def content(folder: Path) -> dict[str, bytes]:
    """The files as they are, for the result."""
    return {name: (folder / name).read_bytes() for name in (SAMPLES, HELD_OUT) if (folder / name).is_file()}
