"""What pushing to Label Studio and pulling from it share: its projects, and the tasks that must be deleted there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from medloop.annotate.label_config import ANSWERS, COMPARISONS, TaskForm
from medloop.annotate.label_studio_api import LabelStudioApi
from medloop.contracts import AuditEvent
from medloop.errors import ConfigError
from medloop.sections import LabelStudioSettings
from medloop.service import ServiceError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import annotation_tasks, imported, outbox

FORMS: tuple[TaskForm, ...] = (ANSWERS, COMPARISONS)
ABOUT = "Made by medloop. It sends answers that people complained about, and reads the annotations: medloop annotate pull"
# The digits of a hash can look like somebody's number; letters cannot.
LETTERS = str.maketrans("0123456789", "ghijklmnop")

Json = dict[str, Any]


def short_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:24].translate(LETTERS)


@dataclass(frozen=True)
class AnnotationProject:
    """A project there: `destination` is its name in `sent_records`, and the beginning of the names of its positions."""

    form: TaskForm
    project_id: int
    destination: str


def known_projects(store: Store, settings: LabelStudioSettings) -> list[AnnotationProject]:
    """The projects at this address to which something was pushed."""
    saved = imported.read_position(store, _projects_name(settings)) or {}
    return [_project(settings, form, saved[form.name]) for form in FORMS if form.name in saved]


def ensure_project(api: LabelStudioApi, store: Store, settings: LabelStudioSettings, form: TaskForm) -> AnnotationProject:
    """The project for this form: the one of the last push, else one with its title and our label config, else a new one."""
    saved = imported.read_position(store, _projects_name(settings)) or {}
    title = f"{settings.project} {form.name}"
    row = api.project(saved[form.name]) if form.name in saved else None
    row = row or next((row for row in api.projects() if row.get("title") == title), None)
    if row is not None and _squeezed(row.get("label_config")) != _squeezed(form.config):
        raise ConfigError(
            f"The project '{title}' at Label Studio has another label config than ours",
            "Give it another title there, or set label_studio.project to another name",
        )
    project_id = int(row["id"]) if row is not None else api.create_project(title, form.config, ABOUT)
    imported.save_position(store, _projects_name(settings), {**saved, form.name: project_id})
    return _project(settings, form, project_id)


def _project(settings: LabelStudioSettings, form: TaskForm, project_id: int) -> AnnotationProject:
    return AnnotationProject(form, project_id, f"label-studio/{short_hash(settings.url.rstrip('/'))}/{project_id}")


def _projects_name(settings: LabelStudioSettings) -> str:
    return f"label-studio/{short_hash(settings.url.rstrip('/'))}/projects/{settings.project}"


def _squeezed(config: Any) -> str:
    return "".join(str(config).split())


@dataclass(frozen=True)
class DeletedTasks:
    deleted: int = 0
    not_deleted: int = 0


def delete_gone(api: LabelStudioApi, store: Store, projects: Sequence[AnnotationProject], *, actor: str) -> DeletedTasks:
    """Delete there what was erased here; what the server refuses to delete is counted, and tried again the next time."""
    deleted = failed = 0
    for project in projects:
        for item_id, task_id in annotation_tasks.gone(store, project.destination).items():
            try:
                api.delete_task(int(task_id))
            except ServiceError as error:
                if error.status == 401 or error.status == 0 or error.status >= 500:
                    raise
                failed += 1
                continue
            outbox.forget_sent(store, project.destination, [item_id])
            deleted += 1
    if deleted or failed:
        note(store, actor, "annotate.delete", "label-studio", {"tasks": deleted, "not_deleted": failed})
    return DeletedTasks(deleted, failed)


def all_tasks(api: LabelStudioApi, project: AnnotationProject) -> Iterator[Json]:
    after = 0
    while tasks := api.tasks(project.project_id, after=after, since=None):
        yield from tasks
        after = tasks[-1]["id"]


def note(store: Store, actor: str, action: str, subject: str, detail: dict[str, str | int | float | bool]) -> None:
    with store.write() as conn:
        audit.append(conn, AuditEvent(actor=actor, action=action, subject=subject, detail=detail))
