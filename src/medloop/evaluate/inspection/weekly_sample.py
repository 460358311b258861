"""The weekly inspection: 40 to 60 answers for a medical reviewer, drawn so that every important group is represented.

    samples = draw(pool.answers, name="2026-W46", config=InspectConfig(), shown=keys)   # pure: same input, same answers
    inspection = inspect(pool, workspace, week="2026-W46", config=InspectConfig())      # draw, record, write the reports

The drawn answers are recorded in `data/rl/inspection_samples.jsonl` before any report is written. So a week is drawn once:
another call writes the same reports again, and a form that somebody may have filled in is never overwritten.
"""

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
from medloop.contracts.score import asserts_fault
from medloop.errors import ConfigError, StoreError, explain_os_errors
from medloop.evaluate.inspection import sample_report
from medloop.evaluate.inspection.pool import AnswerPool, PoolAnswer
from medloop.settings import Workspace
from medloop.store.files import jsonl
from medloop.store.files.atomic import atomic_write, make_folder
from medloop.store.files.lock import locked_file
from medloop.store.files.spreadsheet import read_csv

SAMPLES = "inspection_samples.jsonl"
LEAST, MOST = 40, 60
ALL = "-all"
WAIT_S = 10.0  # a draw takes seconds
# The weight of each group: the sample is filled so that counts divided by weights grow alike. Most serious first.
GROUPS: Mapping[str, float] = {
    "safety_flag": 3, "conflict": 3, "red_flag": 3, "no_reward": 1, "high_risk": 2, "low_reward": 2, "teacher_missing": 1,
    "high_reward": 1, "middle_reward": 1, "language:zh": 1, "language:en": 1, "language:mixed": 0.5, "language:other": 0.5,
}  # fmt: skip
FLAGS = ("safety_flag", "conflict", "red_flag", "no_reward", "teacher_missing", "low_reward")  # groups shown to the reviewer


class InspectConfig(Contract):
    """Which answers a sample has."""

    n: int = Field(50, ge=1)
    """Answers a week, 40 to 60; ignored with `everything`."""
    everything: bool = False
    """All answers instead of a sample; they do not count as shown."""
    seed: int = Field(42, ge=0)
    penalty_flag: Unit = 0.5
    """A penalty of at least this value is flagged."""


@dataclass(frozen=True)
class Inspection:
    """A sample and its folder. `before`: it was drawn earlier and is unchanged; `again`: answers shown in an earlier week."""

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
    match = re.fullmatch(r"(\d{4})-W(\d{2})", text)
    try:
        if match:
            date.fromisocalendar(int(match[1]), int(match[2]), 1)
            return text
    except ValueError:
        pass
    raise ConfigError(f"--week: '{text}' is not an ISO week", "Weeks look like 2026-W46")


def inspect(
    pool: AnswerPool, workspace: Workspace, *, week: str, config: InspectConfig, output: Path | None = None
) -> Inspection:
    """Draw the sample unless the week has one, record it, and write report.md, report.html, samples.csv, form.csv and form.md."""
    if not config.everything and not LEAST <= config.n <= MOST:
        raise ConfigError(f"--n {config.n}: a weekly sample has {LEAST} to {MOST} answers", "For every answer use --all")
    with exclusive(workspace):
        return _inspect(pool, workspace, week + (ALL if config.everything else ""), config, output)


@contextmanager
def exclusive(workspace: Workspace) -> Iterator[None]:
    """One draw or import at a time: two at once would assign the same ids, or store the same verdict twice."""
    lock = workspace.rl / "inspection.lock"
    with explain_os_errors(lock, writing=True):
        make_folder(lock.parent)
    with locked_file(lock, wait_s=WAIT_S, mode=0o600):
        yield


def _inspect(pool: AnswerPool, workspace: Workspace, name: str, config: InspectConfig, output: Path | None) -> Inspection:
    path = workspace.rl / SAMPLES
    recorded = list(jsonl.read(path, InspectedSample)) if path.is_file() else []
    samples = tuple(answer for answer in recorded if answer.sample == name)
    shown = [answer.key for answer in recorded if not answer.sample.endswith(ALL) and answer.sample != name]
    before = bool(samples) and not config.everything
    if not before:
        samples = draw(pool.answers, name=name, config=config, shown=shown)
        if not samples:
            raise ConfigError("There are no answers to inspect", "Name files that have some")
        jsonl.append(path, _new_lines(samples, recorded))
    folder = (output or workspace.reports / "inspect" / name).expanduser().absolute()
    groups = count_groups(pool.answers, samples)
    form_kept = write_reports(folder, name, samples, groups)
    again = sum(answer.key in set(shown) for answer in samples)
    return Inspection(name, samples, folder, form_kept, before, again, groups)


def _new_lines(samples: Sequence[InspectedSample], recorded: Sequence[InspectedSample]) -> list[InspectedSample]:
    """`--all` may run twice a week: the same answer with the same reward is one line."""
    known = {(answer.id, answer.key, answer.reward.content_id()) for answer in recorded}
    return [answer for answer in samples if (answer.id, answer.key, answer.reward.content_id()) not in known]


def draw(
    pool: Sequence[PoolAnswer], *, name: str, config: InspectConfig, shown: Sequence[str] = ()
) -> tuple[InspectedSample, ...]:
    """The sample, most serious first. An answer shown in an earlier week comes again only when no other is left, oldest first."""
    order, bounds = {key: index for index, key in enumerate(shown)}, reward_bounds(pool)
    groups = [groups_of(answer, bounds) for answer in pool]
    ranks = [_random_rank(answer, name, config.seed) for answer in pool]
    if config.everything:
        chosen = list(range(len(pool)))
    else:
        fresh = [index for index, answer in enumerate(pool) if answer.key not in order]
        chosen = _stratified(fresh, groups, ranks, config.n)
        seen = sorted((i for i, answer in enumerate(pool) if answer.key in order), key=lambda i: order[pool[i].key])
        chosen += seen[: config.n - len(chosen)]
    severity = list(GROUPS)
    chosen.sort(key=lambda index: (min(map(severity.index, groups[index])), ranks[index]))
    # A list of everything may grow within its week, so there the id comes from the text and not from the position.
    ids = [f"{name}-{pool[i].key[7:19]}" if config.everything else f"{name}-{place:03d}" for place, i in enumerate(chosen, 1)]
    return tuple(_inspected(pool[index], groups[index], id_, name, config) for index, id_ in zip(chosen, ids, strict=True))


def _random_rank(answer: PoolAnswer, name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{name}:{answer.key}".encode()).digest()


def _stratified(members: Sequence[int], groups: Sequence[tuple[str, ...]], ranks: Sequence[bytes], n: int) -> list[int]:
    """Again and again, the group that is furthest behind its weight draws its next member at random."""
    ranked = sorted(members, key=lambda index: ranks[index])
    queues = {group: iter([index for index in ranked if group in groups[index]]) for group in GROUPS}
    counts, chosen = Counter[str](), dict[int, None]()
    while queues and len(chosen) < min(n, len(members)):
        group = min(queues, key=lambda name: counts[name] / GROUPS[name])
        index = next((index for index in queues[group] if index not in chosen), None)
        if index is None:
            del queues[group]
            continue
        chosen[index] = None
        counts.update(groups[index])
    return list(chosen)


def reward_bounds(pool: Sequence[PoolAnswer]) -> tuple[float, float]:
    """The upper bound of a low reward and the lower bound of a high one: the thirds of this pool, equal values kept together."""
    values = sorted(answer.reward.value for answer in pool if answer.reward.value is not None)
    return (values[len(values) // 3], values[-(len(values) // 3) - 1]) if values else (0.0, 0.0)


def groups_of(answer: PoolAnswer, bounds: tuple[float, float]) -> tuple[str, ...]:
    """Every group of an answer, most serious first."""
    value, (low, high) = answer.reward.value, bounds
    judged = answer.judgement is not None or any(p.name == "teacher" and isinstance(p, Score) for p in answer.reward.parts)
    member = {
        "safety_flag": answer.judgement is not None and answer.judgement.safety_flag, "conflict": answer.conflict,
        "red_flag": "emergency" in answer.strata, "no_reward": value is None,
        "high_risk": any(stratum in HIGH_RISK for stratum in answer.strata if stratum != "emergency"),
        "teacher_missing": not judged, "low_reward": value is not None and (value < low or value == low < high),
        "high_reward": value is not None and (value > high or value == high > low), f"language:{answer.language}": True,
    }  # fmt: skip
    member["middle_reward"] = value is not None and not member["low_reward"] and not member["high_reward"]
    return tuple(group for group in GROUPS if member.get(group))


def _inspected(answer: PoolAnswer, groups: tuple[str, ...], id_: str, name: str, config: InspectConfig) -> InspectedSample:
    reward, sample = answer.reward, answer.sample
    penalties = [
        part.name for part in reward.parts if asserts_fault(part, config.penalty_flag) and reward.weights.get(part.name, 0) < 0
    ]
    no_answer = ["no_answer"] if sample.answer is None else []
    return InspectedSample(
        id=id_, sample=name, key=answer.key, answer_id=sample.id, source=answer.source, question=sample.question,
        answer=sample.answer, language=answer.language, strata=answer.strata, reward=reward, judgement=answer.judgement,
        flags=(*(group for group in groups if group in FLAGS), *penalties, *no_answer), drawn_for=groups, timestamp=utc_now(),
    )  # fmt: skip


def count_groups(pool: Sequence[PoolAnswer], drawn: Sequence[InspectedSample]) -> dict[str, tuple[int, int]]:
    """Group -> (answers available, answers drawn); empty groups are left out."""
    bounds = reward_bounds(pool)
    available = Counter(group for answer in pool for group in groups_of(answer, bounds))
    in_sample = Counter(group for answer in drawn for group in answer.drawn_for)
    return {group: (available[group], in_sample[group]) for group in GROUPS if available[group] or in_sample[group]}


def write_reports(folder: Path, name: str, samples: Sequence[InspectedSample], groups: Mapping[str, tuple[int, int]]) -> bool:
    """All files of a sample; True when its form was there and was left as it is."""
    form = folder / "form.csv"
    form_kept = form.exists()
    if form_kept and {row.get("id") for _, row in read_csv(form).rows} != {answer.id for answer in samples}:
        raise StoreError(f"{form} belongs to another sample", "Move it away, or name another folder with --output")
    atomic_write(folder / "report.md", sample_report.markdown(name, samples, groups))
    atomic_write(folder / "report.html", sample_report.html(name, samples, groups))
    atomic_write(folder / "samples.csv", sample_report.samples_csv(samples))
    atomic_write(folder / "form.md", sample_report.form_markdown(name, samples, form))
    if not form_kept:
        atomic_write(form, sample_report.form_csv(samples))
    return form_kept
