"""Pull from Label Studio: annotations become ordinary ratings, choices and corrections, through the door of every other one.

    pull_annotations(settings, store, consent=("training",), actor="user:li")        # PullCounts(...)

Each annotation is checked against the form of its task; one with a part that does not fit is reported and not taken, and so is
one of a task that is not ours or whose texts were changed there. The annotator must be a user here (`label_studio.raters`): what
somebody unknown has annotated waits. An annotation is stored once, under an id that follows from it; where it was changed there,
a new record supersedes the old one. What was erased here does not come back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from medloop.annotate.label_config import BogusResult, Verdict, read_result
from medloop.annotate.label_studio_api import LabelStudioApi, open_label_studio
from medloop.annotate.tasks import data_of, first_of, shows
from medloop.contracts import utc_now
from medloop.contracts.base import iso_utc
from medloop.contracts.feedback import Purpose
from medloop.errors import ConfigError, InputError
from medloop.feedback.review import queue
from medloop.feedback.submit.sender import Sender
from medloop.feedback.submit.submit import prepare_submission
from medloop.loop.annotate_records import AnnotationAuthor, AnnotationRecords
from medloop.loop.annotate_server import (
    AnnotationProject,
    Json,
    delete_gone,
    exclusive,
    find_sent,
    known_projects,
    note,
    short_hash,
)
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import annotation_tasks, imported, users
from medloop.store.records.annotation_tasks import AnnotatedItem
from medloop.store.records.group_commit import GroupCommitWriter
from medloop.store.records.review_queue import LapsedError

OVERLAP = timedelta(minutes=10)  # the clock of the server is not ours, and a change may be seen late
MOST_PROBLEMS = 200  # that are kept for `medloop annotate status`


@dataclass
class PullCounts:
    """`problems` are counted by what is wrong, `unknown` by annotator; `unsettled`: stored, but no verdict on the item.

    `hidden`: of answers that wait in quarantine; they are read when those are released.
    """

    tasks: int = 0
    annotations: int = 0
    ratings: int = 0
    corrections: int = 0
    choices: int = 0
    changed: int = 0
    known: int = 0
    skipped: int = 0
    unsettled: int = 0
    hidden: int = 0
    held: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    deleted: int = 0
    not_deleted: int = 0

    @property
    def new(self) -> int:
        return self.ratings + self.corrections + self.choices

    def as_json(self) -> Json:
        return {**asdict(self), "problems": dict(self.problems), "unknown": dict(self.unknown), "new": self.new}


def pull_annotations(
    settings: Settings, store: Store, *, consent: Sequence[Purpose] = (), everything: bool = False, actor: str,
    backoff_s: float = 0.5, on_rows: Callable[[int], object] = lambda count: None,
) -> PullCounts:  # fmt: skip
    """Read what changed since the last pull, or `everything`; safe to stop and to repeat at any time."""
    counts, server = PullCounts(), settings.label_studio
    projects = known_projects(store, server)
    if not projects:
        raise ConfigError("Nothing was pushed to this Label Studio", "Push first: medloop annotate push")
    authors = _authors(store, server.raters)
    with (
        exclusive(settings),
        open_label_studio(server, backoff_s=backoff_s) as api,
        GroupCommitWriter(store).running() as writer,
    ):
        for project in projects:
            find_sent(api, store, project)
        gone = delete_gone(api, store, projects, actor=actor)
        counts.deleted, counts.not_deleted = gone.deleted, gone.not_deleted
        emails = api.annotators()
        for project in projects:
            _Puller(api, store, writer, project, authors, emails, tuple(consent), counts, on_rows).pull(everything)
    detail: dict[str, str | int | float | bool] = {"records": counts.new, "refused": counts.problems.total()}
    note(store, actor, "annotate.pull", "label-studio", {**detail, "unknown": counts.unknown.total()})
    return counts


def _authors(store: Store, raters: str) -> dict[str, AnnotationAuthor]:
    """The users behind the e-mail addresses; only those may speak who could log in and judge here."""
    found, people = {}, {user.name: user for user in users.list_users(store)}
    for pair in filter(None, (part.strip() for part in raters.split(","))):
        email, _, name = pair.partition("=")
        user = people.get(name)
        if user is None or user.role not in users.RATERS:
            raise ConfigError(
                f"label_studio.raters: '{name[:64]}' is no clinician or annotator here", "See them with: medloop users list"
            )
        if not user.disabled and not user.waits:
            found[email.lower()] = AnnotationAuthor(user.user_id, by_queue=user.role == "annotator")
    return found


@dataclass
class _Puller:
    api: LabelStudioApi
    store: Store
    writer: GroupCommitWriter
    project: AnnotationProject
    authors: dict[str, AnnotationAuthor]
    emails: dict[int, str]
    consent: tuple[Purpose, ...]
    counts: PullCounts
    on_rows: Callable[[int], object]
    waiting: datetime | None = None  # the oldest task with an annotation that could not be taken yet
    newest: datetime | None = None
    problems: dict[str, str] = field(default_factory=dict)

    def pull(self, everything: bool) -> None:
        name = f"{self.project.destination}/pull"
        saved = imported.read_position(self.store, name) or {}
        since = None if everything else time_of(saved.get("since"))
        start = utc_now()  # what changes from now on may be on a page that was read
        self.problems = dict(saved.get("problems", {}))
        after, before = 0, self.counts.new
        while tasks := self.api.tasks(self.project.project_id, after=after, since=since - OVERLAP if since else None):
            self._take(tasks)
            after = tasks[-1]["id"]
            self.on_rows(len(tasks))
        newest = self.newest or since
        reached = min(filter(None, (newest, self.waiting, start))) if newest else None
        position = {
            "since": iso_utc(reached) if reached else None,
            "records": saved.get("records", 0) + self.counts.new - before,
            "problems": dict(sorted(self.problems.items())[-MOST_PROBLEMS:]),
            "pulled": iso_utc(utc_now()),
        }
        imported.save_position(self.store, name, position)

    def _take(self, tasks: Sequence[Json]) -> None:
        items = annotation_tasks.item_of_task(self.store, self.project.destination, [str(task["id"]) for task in tasks])
        for task in tasks:
            updated = time_of(task.get("updated_at"))
            self.newest = max(filter(None, (self.newest, updated)), default=None)
            annotations = task.get("annotations")
            annotations = annotations if isinstance(annotations, list) else []
            self.counts.tasks += bool(annotations)
            item = items.get(str(task["id"]))
            if annotations and item is None and str(task["id"]) in items:
                self.counts.hidden += len(annotations)
                self.waiting = min(filter(None, (self.waiting, updated)), default=None)
                continue
            for annotation in annotations:
                self.counts.annotations += 1
                try:
                    self._take_one(task, item, annotation, updated)
                    self.problems.pop(self._name(task, annotation), None)
                except BogusResult as problem:
                    self.counts.problems[str(problem)] += 1
                    self.problems[self._name(task, annotation)] = str(problem)

    @staticmethod
    def _name(task: Json, annotation: Any) -> str:
        number = annotation.get("id") if isinstance(annotation, dict) else None
        return f"task {task['id']} annotation {number if isinstance(number, int) else '?'}"

    def _take_one(self, task: Json, item: AnnotatedItem | None, annotation: Any, updated: datetime | None) -> None:
        if item is None:
            raise BogusResult("not_our_task")
        if not isinstance(annotation, dict) or not isinstance(annotation.get("id"), int):
            raise BogusResult("not_a_result")
        if annotation.get("was_cancelled"):
            self.counts.skipped += 1
            return
        if not shows(task, data_of(item.item_id, item.kind, item.content)):
            raise BogusResult("task_was_changed")
        verdict = read_result(self.project.form, annotation.get("result"))
        author = self._author(annotation.get("completed_by"))
        if author is None:
            self.waiting = min(filter(None, (self.waiting, updated)), default=None)
            return
        self._store(item, annotation, verdict, author)

    def _author(self, completed_by: Any) -> AnnotationAuthor | None:
        number = completed_by.get("id") if isinstance(completed_by, dict) else completed_by
        email = self.emails.get(number, "") if isinstance(number, int) else ""
        author = self.authors.get(email)
        if author is None:
            self.counts.unknown[email or f"user {number if isinstance(number, int) else '?'}"] += 1
        return author

    def _store(self, item: AnnotatedItem, annotation: Json, verdict: Verdict, author: AnnotationAuthor) -> None:
        base = short_hash(self.project.destination, str(annotation["id"]), str(annotation.get("created_at")))
        first = first_of(item.item_id) if item.kind == "compare" else None
        said = time_of(annotation.get("updated_at")) or time_of(annotation.get("created_at"))
        records = AnnotationRecords(self.store, item, base, author, self.consent, said, first)
        bodies = records.new_bodies(verdict)
        judges = {"rate": "feedback", "correct": "correction", "compare": "preference"}[item.kind]
        if not bodies:
            self.counts.known += 1
        if judges not in dict(bodies) and (newest := records.newest(judges)) is not None:
            self._settle(item, author, newest)  # a pull may have been interrupted before this
        if not bodies:
            return
        annotation_tasks.take_seat(self.store, item.item_id, author.user_id, shown_first=first, now=utc_now())
        sender = Sender(author.user_id, by_queue=author.by_queue)
        for kind, body in bodies:
            try:
                answer = self.writer.submit_and_wait(prepare_submission(self.store, body, sender)).answer
            except InputError:
                raise BogusResult("not_accepted") from None
            self.counts.held += bool(answer["quarantined"])
            name = {"feedback": "ratings", "correction": "corrections", "preference": "choices"}[kind]
            setattr(self.counts, name, getattr(self.counts, name) + 1)
            self.counts.changed += body.supersedes is not None
            if kind == judges and not self._settle(item, author, answer[f"{kind}_id"]):
                self.counts.unsettled += body.supersedes is None

    def _settle(self, item: AnnotatedItem, author: AnnotationAuthor, record_id: str) -> bool:
        """The record is the verdict on the item; where others have settled it before, it stays an ordinary one."""
        try:
            queue.finish(self.store, item.item_id, author.user_id, record_id)
        except (LapsedError, InputError):
            return False
        return True


def time_of(value: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo is not None else None
