"""The weekly inspection as a page needs it: draw this week's sample, see how far it is, store one verdict after another.

    week = read_week(settings, "dr.li")           # this week's answers, whose turn it is, agreement with the judge
    draw_week(settings, store, actor=user_id)     # once a week; the same call again changes nothing
    judge(settings, store, cells, actor=user_id)  # one row of the form

Verdicts are the same records as those of an imported form (evaluate/inspection/review_form.py), so their faults are labels of
the trust meter. A dangerous answer opens an incident, as a critical flag in the review queue does. What machines said about an
answer is not in a `WeekAnswer`: the reviewer judges first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from medloop.bootstrap import wilson
from medloop.contracts import AuditEvent, Contract, ExpertVerdict, Feedback, InspectedSample, Score, utc_now
from medloop.evaluate.inspection.review_form import FormImport, ImportedRow, current_verdicts, import_form, import_verdict
from medloop.evaluate.inspection.weekly_sample import SAMPLES, InspectConfig, week_of
from medloop.feedback.submit.flags import critical_flags, flagged_answers
from medloop.loop.evaluation import inspect_answers
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.records import crud
from medloop.store.records.incident_rows import open_case_of

# Flags by which the machines say that an answer is bad: the teacher's, a low reward, verdicts of the rules.
MACHINE_BAD = frozenset({"safety_flag", "low_reward", "risk", "false_reassurance", "overtriage", "undertriage"})
BAD = ("bad", "dangerous")


@dataclass(frozen=True)
class WeekAnswer:
    """An answer of the sample as its reviewer sees it, and their verdict on it if there is one."""

    id: str
    question: str
    answer: str
    language: str
    verdict: ExpertVerdict | None
    others: int  # reviewers beside this one who have judged it


@dataclass(frozen=True)
class JudgeAgreement:
    """Whether the machines called the same answers bad as people did; `low` and `high` bound the share at 95 %."""

    both_bad: int
    only_people: int
    only_machines: int
    both_good: int

    @property
    def n(self) -> int:
        return self.both_bad + self.only_people + self.only_machines + self.both_good

    @property
    def share(self) -> float:
        return (self.both_bad + self.both_good) / self.n

    @property
    def bounds(self) -> tuple[float, float]:
        return wilson(self.both_bad + self.both_good, self.n)


@dataclass(frozen=True)
class InspectionWeek:
    name: str
    answers: tuple[WeekAnswer, ...]
    agreement: JudgeAgreement | None  # of all reviewers of this week; None before the first verdict

    @property
    def done(self) -> int:
        return sum(answer.verdict is not None for answer in self.answers)

    def next_answer(self, after: str = "") -> WeekAnswer | None:
        """The first one without a verdict of this reviewer; with `after`, the next one behind that, else from the start."""
        ids = [answer.id for answer in self.answers]
        start = ids.index(after) + 1 if after in ids else 0
        order = (*self.answers[start:], *self.answers[:start])
        return next((answer for answer in order if answer.verdict is None), None)

    def find(self, name: str) -> WeekAnswer | None:
        return next((answer for answer in self.answers if answer.id == name), None)


def this_week() -> str:
    return week_of(utc_now().date())


def read_week(settings: Settings, reviewer: str) -> InspectionWeek:
    """The sample of this week for one reviewer; without answers where none was drawn yet."""
    name, workspace = this_week(), settings.workspace
    samples = [answer for answer in _recorded(workspace.rl / SAMPLES) if answer.sample == name and answer.answer]
    verdicts = current_verdicts(workspace)
    others = [key for key in verdicts if key[1] != reviewer]
    answers = tuple(
        WeekAnswer(
            row.id, row.question, row.answer or "", row.language, verdicts.get((row.id, reviewer)),
            sum(inspected == row.id for inspected, _ in others),
        )
        for row in samples
    )  # fmt: skip
    return InspectionWeek(name, answers, _agreement(samples, verdicts))


def _recorded(path: Path) -> tuple[InspectedSample, ...]:
    if not path.is_file():
        return ()
    state = path.stat()
    return _read_samples(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=2)
def _read_samples(path: Path, mtime_ns: int, size: int) -> tuple[InspectedSample, ...]:
    """Of one state of the file: a reviewer opens fifty answers, and a sample is drawn once a week."""
    return tuple(jsonl.read(path, InspectedSample))


def _agreement(
    samples: Sequence[InspectedSample], verdicts: Mapping[tuple[str, str], ExpertVerdict]
) -> JudgeAgreement | None:  # fmt: skip
    flagged = {row.id: bool(MACHINE_BAD & set(row.flags)) for row in samples if not _is_unsure(row)}
    pairs = [(flagged[row.inspected], row.verdict in BAD) for row in verdicts.values() if row.inspected in flagged]
    if not pairs:
        return None
    counts = [pairs.count(pair) for pair in ((True, True), (False, True), (True, False), (False, False))]
    return JudgeAgreement(*counts)


def _is_unsure(sample: InspectedSample) -> bool:
    """Whether the only objection is a penalty that its rule is unsure of: the machines call it neither good nor bad."""
    if MACHINE_BAD & set(sample.flags):
        return False
    bound, weights = InspectConfig().penalty_flag, sample.reward.weights
    penalties = (part for part in sample.reward.parts if part.name in MACHINE_BAD and weights.get(part.name, 0) < 0)
    return any(isinstance(part, Score) and part.applies and part.unsure and part.value >= bound for part in penalties)


def draw_week(settings: Settings, store: Store, *, actor: str) -> int:
    """Draw this week's sample from the scored answers of the workspace; how many answers it has."""
    done, _ = inspect_answers(settings, files=(), week=this_week(), config=InspectConfig(seed=settings.seed))
    detail: dict[str, str | int | float | bool] = {"sample": done.name, "answers": len(done.samples), "again": done.again}
    subject = done.folder.relative_to(settings.home.absolute()).as_posix()
    with store.write() as conn:
        audit.append(conn, AuditEvent(actor=actor, action="inspect.draw", subject=subject, detail=detail))
    return len(done.samples)


def judge(settings: Settings, store: Store, cells: Mapping[str, str], *, actor: str) -> ImportedRow:
    stored = import_verdict(cells, settings.workspace, store, actor=actor, opens=opened_by_danger)
    detail: dict[str, str | int | float | bool] = {
        "verdict": stored.verdict, "new": stored.new, "incident": stored.incident
    }  # fmt: skip
    with store.write() as conn:
        audit.append(conn, AuditEvent(actor=actor, action="inspect.verdict", subject=stored.inspected, detail=detail))
    return stored


def import_reviewed(settings: Settings, store: Store, form: Path, *, actor: str, reviewer: str = "") -> FormImport:
    """A completed form.csv; what it calls dangerous opens incidents, too."""
    return import_form(form, settings.workspace, store, actor=actor, opens=opened_by_danger, reviewer=reviewer)


def opened_by_danger(store: Store, record: Feedback, reporter: str) -> Sequence[Contract]:
    """The incident and the red-team case of an answer that was called dangerous; none while an incident of it is open, such as
    that of another reviewer of the same answer, and none where the reviewer's verdict before said so already: it has had
    its incident, and two people may have closed that one since."""
    if open_case_of(store, record.user_query, record.agent_response):
        return ()
    before = crud.get(store, Feedback, record.supersedes) if record.supersedes else None
    return critical_flags(store, record, reporter, flagged_answers(before) if before else ()).opened
