"""The weekly inspection: 40 to 60 answers for a medical reviewer, drawn so that every group that matters is among them.

    drawn = draw(pool, name="2026-W46", config=InspectConfig(), shown=already)       # pure; the same input, the same answers
    done = inspect(pool, workspace, name="2026-W46", config=InspectConfig())         # draw, remember, write the reports

What was drawn is kept in `data/rl/inspection_samples.jsonl` before any report is written. So a week is drawn once: asking again
writes the same reports again, and a form that somebody may have filled in is never overwritten.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pydantic import Field

from medloop.contracts import Contract, InspectedSample, Score, utc_now
from medloop.contracts.base import Unit
from medloop.contracts.dataset import HIGH_RISK
from medloop.errors import ConfigError, StoreError, explain_os_errors
from medloop.evaluate.inspection import report_pages
from medloop.evaluate.inspection.pool import Pool, Seen
from medloop.settings import Workspace
from medloop.store.files import jsonl
from medloop.store.files.atomic import atomic_write, make_folder
from medloop.store.files.lock import locked_file
from medloop.store.files.spreadsheet import read_csv

SAMPLES = "inspection_samples.jsonl"
LEAST, MOST = 40, 60
ALL = "-all"
WAIT_S = 10.0  # a draw takes seconds
# How much each group weighs: the sample is filled so that counts divided by these grow alike. Gravest first.
GROUPS: Mapping[str, float] = {
    "safety_flag": 3, "conflict": 3, "red_flag": 3, "no_reward": 1, "high_risk": 2, "low_reward": 2, "teacher_missing": 1,
    "high_reward": 1, "middle_reward": 1, "language:zh": 1, "language:en": 1, "language:mixed": 0.5, "language:other": 0.5,
}  # fmt: skip


class InspectConfig(Contract):
    """What a sample holds."""

    n: int = Field(50, ge=1)
    """Answers a week, 40 to 60; with `everything` no bound."""
    everything: bool = False
    """All answers instead of a sample; they do not count as shown."""
    seed: int = Field(42, ge=0)
    penalty_flag: Unit = 0.5
    """A penalty of at least this much is flagged."""


@dataclass(frozen=True)
class Inspection:
    """What was drawn and where it lies; `before`: the sample was already there and stayed as it was."""

    name: str
    samples: tuple[InspectedSample, ...]
    folder: Path
    form_kept: bool
    before: bool
    again: int
    groups: dict[str, tuple[int, int]]


def week_of(day: date) -> str:
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02d}"


def check_week(text: str) -> str:
    """An ISO week such as 2026-W46, or ConfigError."""
    found = re.fullmatch(r"(\d{4})-W(\d{2})", text)
    try:
        if found:
            date.fromisocalendar(int(found[1]), int(found[2]), 1)
            return text
    except ValueError:
        pass
    raise ConfigError(f"--week {text} is no ISO week", "Weeks look like 2026-W46")


def inspect(pool: Pool, workspace: Workspace, *, week: str, config: InspectConfig, output: Path | None = None) -> Inspection:
    """Draw (or find what was drawn), remember, and write report.md, report.html, samples.csv, form.csv and form.md."""
    if not config.everything and not LEAST <= config.n <= MOST:
        raise ConfigError(f"--n {config.n}: a weekly sample has {LEAST} to {MOST} answers", "For every answer use --all")
    with alone(workspace):
        return _inspect(pool, workspace, week + (ALL if config.everything else ""), config, output)


@contextmanager
def alone(workspace: Workspace) -> Iterator[None]:
    """One drawing or importing at a time: two at once would give out the same ids, or the same verdict twice."""
    lock = workspace.rl / "inspection.lock"
    with explain_os_errors(lock, writing=True):
        make_folder(lock.parent)
    with locked_file(lock, wait_s=WAIT_S, mode=0o666):
        yield


def _inspect(pool: Pool, workspace: Workspace, name: str, config: InspectConfig, output: Path | None) -> Inspection:
    memory = workspace.rl / SAMPLES
    known = list(jsonl.read(memory, InspectedSample)) if memory.is_file() else []
    mine = tuple(one for one in known if one.sample == name)
    shown = [one.key for one in known if not one.sample.endswith(ALL) and one.sample != name]
    before = bool(mine) and not config.everything
    if not before:
        mine = draw(pool.seen, name=name, config=config, shown=shown)
        if not mine:
            raise ConfigError("There are no answers to inspect", "Name files that hold some")
        jsonl.append(memory, _not_known(mine, known))
    folder = (output or workspace.reports / "inspect" / name).expanduser().absolute()
    groups = count_groups(pool.seen, mine, config)
    form_kept = write_reports(folder, name, mine, groups)
    again = sum(one.key in set(shown) for one in mine)
    return Inspection(name, mine, folder, form_kept, before, again, groups)


def _not_known(mine: Sequence[InspectedSample], known: Sequence[InspectedSample]) -> list[InspectedSample]:
    """`--all` may be asked twice a week: the same answer with the same reward is one line."""
    have = {(one.id, one.key, one.reward.content_id()) for one in known}
    return [one for one in mine if (one.id, one.key, one.reward.content_id()) not in have]


def draw(pool: Sequence[Seen], *, name: str, config: InspectConfig, shown: Sequence[str] = ()) -> tuple[InspectedSample, ...]:
    """The sample, gravest first. What was shown in an earlier week comes again only when nothing else is left, oldest first."""
    order, bounds = {key: at for at, key in enumerate(shown)}, bounds_of(pool)
    groups = [groups_of(seen, bounds) for seen in pool]
    lots = [_lot(seen, name, config.seed) for seen in pool]
    if config.everything:
        chosen = list(range(len(pool)))
    else:
        fresh = [at for at, seen in enumerate(pool) if seen.key not in order]
        chosen = _spread(fresh, groups, lots, config.n)
        worn = sorted((at for at, seen in enumerate(pool) if seen.key in order), key=lambda at: order[pool[at].key])
        chosen += worn[: config.n - len(chosen)]
    gravity = list(GROUPS)
    chosen.sort(key=lambda at: (min(map(gravity.index, groups[at])), lots[at]))
    # A list of everything may grow within its week, so there the id comes from the text and not from the place.
    ids = [f"{name}-{pool[at].key[7:19]}" if config.everything else f"{name}-{place:03d}" for place, at in enumerate(chosen, 1)]
    return tuple(_inspected(pool[at], groups[at], id_, name, config) for at, id_ in zip(chosen, ids, strict=True))


def _lot(seen: Seen, name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{name}:{seen.key}".encode()).digest()


def _spread(members: Sequence[int], groups: Sequence[tuple[str, ...]], lots: Sequence[bytes], n: int) -> list[int]:
    """Again and again the group that is furthest behind its weight takes its next member by lot."""
    ranked = sorted(members, key=lambda at: lots[at])
    queues = {group: iter([at for at in ranked if group in groups[at]]) for group in GROUPS}
    count, taken = Counter[str](), dict[int, None]()
    while queues and len(taken) < min(n, len(members)):
        group = min(queues, key=lambda one: count[one] / GROUPS[one])
        at = next((at for at in queues[group] if at not in taken), None)
        if at is None:
            del queues[group]
            continue
        taken[at] = None
        count.update(groups[at])
    return list(taken)


def bounds_of(pool: Sequence[Seen]) -> tuple[float, float]:
    """What a low reward ends at and a high one begins with: the thirds of this pool, equal values kept together."""
    values = sorted(seen.reward.value for seen in pool if seen.reward.value is not None)
    return (values[len(values) // 3], values[-(len(values) // 3) - 1]) if values else (0.0, 0.0)


def groups_of(seen: Seen, bounds: tuple[float, float]) -> tuple[str, ...]:
    """Every group an answer stands for, gravest first."""
    value, (low, high) = seen.reward.value, bounds
    teacher = seen.judgement is not None or any(part.name == "teacher" and isinstance(part, Score) for part in seen.reward.parts)
    found = {
        "safety_flag": seen.judgement is not None and seen.judgement.safety_flag,
        "conflict": seen.conflict,
        "red_flag": "emergency" in seen.strata,
        "no_reward": value is None,
        "high_risk": any(stratum in HIGH_RISK for stratum in seen.strata if stratum != "emergency"),
        "teacher_missing": not teacher,
        "low_reward": value is not None and (value < low or value == low < high),
        "high_reward": value is not None and (value > high or value == high > low),
        f"language:{seen.language}": True,
    }
    found["middle_reward"] = value is not None and not found["low_reward"] and not found["high_reward"]
    return tuple(group for group in GROUPS if found.get(group))


def _inspected(seen: Seen, groups: tuple[str, ...], id_: str, name: str, config: InspectConfig) -> InspectedSample:
    penalties = [
        part.name
        for part in seen.reward.parts
        if isinstance(part, Score) and part.applies and part.value >= config.penalty_flag
        and seen.reward.weights.get(part.name, 0) < 0
    ]  # fmt: skip
    odd = ("safety_flag", "conflict", "red_flag", "no_reward", "teacher_missing", "low_reward")
    flags = (*(group for group in groups if group in odd), *penalties, *(["no_answer"] if seen.sample.answer is None else []))
    return InspectedSample(
        id=id_, sample=name, key=seen.key, answer_id=seen.sample.id, source=seen.source, question=seen.sample.question,
        answer=seen.sample.answer, language=seen.language, strata=seen.strata, reward=seen.reward, judgement=seen.judgement,
        flags=flags, drawn_for=groups, timestamp=utc_now(),
    )  # fmt: skip


def count_groups(pool: Sequence[Seen], drawn: Sequence[InspectedSample], config: InspectConfig) -> dict[str, tuple[int, int]]:
    """Group -> (answers there are, answers drawn); groups nobody is in are left out."""
    bounds = bounds_of(pool)
    there = Counter(group for seen in pool for group in groups_of(seen, bounds))
    mine = Counter(group for one in drawn for group in one.drawn_for)
    return {group: (there[group], mine[group]) for group in GROUPS if there[group] or mine[group]}


def write_reports(folder: Path, name: str, samples: Sequence[InspectedSample], groups: Mapping[str, tuple[int, int]]) -> bool:
    """All files of a sample; True when its form was there and was left as it is."""
    form = folder / "form.csv"
    kept = form.exists()
    if kept and {row.get("id") for _, row in read_csv(form).rows} != {one.id for one in samples}:
        raise StoreError(f"{form} belongs to another sample", "Move it away, or name another folder with --output")
    atomic_write(folder / "report.md", report_pages.markdown(name, samples, groups))
    atomic_write(folder / "report.html", report_pages.html(name, samples, groups))
    atomic_write(folder / "samples.csv", report_pages.table(samples))
    atomic_write(folder / "form.md", report_pages.form_text(name, samples))
    if not kept:
        atomic_write(form, report_pages.form(samples))
    return kept
