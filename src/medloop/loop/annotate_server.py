"""What pushing to Label Studio and pulling from it share: its projects, and the tasks that must be deleted there."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from medloop.annotate.label_config import ANSWERS, COMPARISONS, TaskForm
from medloop.annotate.label_studio_api import LabelStudioApi
from medloop.annotate.tasks import id_in
from medloop.contracts import AuditEvent
from medloop.errors import ConfigError, explain_os_errors
from medloop.sections import LabelStudioSettings
from medloop.service import ServiceError
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.files.atomic import make_folder
from medloop.store.files.lock import locked_file
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
    """The projects at this address to which something was pushed: those of the last push, then all earlier ones."""
    saved = imported.read_position(store, _projects_name(settings)) or {}
    ever = imported.read_position(store, _ever_name(settings)) or {}
    now = [_project(settings, form, saved[form.name]) for form in FORMS if form.name in saved]
    earlier = [_project(settings, form, number) for form in FORMS for number in ever.get(form.name, [])]
    return [*now, *(project for project in earlier if project not in now)]


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
    ever = imported.read_position(store, _ever_name(settings)) or {}
    numbers = {*ever.get(form.name, []), *filter(None, (saved.get(form.name),)), project_id}
    imported.save_position(store, _ever_name(settings), {**ever, form.name: sorted(numbers)})
    imported.save_position(store, _projects_name(settings), {**saved, form.name: project_id})
    return _project(settings, form, project_id)


def _project(settings: LabelStudioSettings, form: TaskForm, project_id: int) -> AnnotationProject:
    return AnnotationProject(form, project_id, f"label-studio/{short_hash(settings.url.rstrip('/'))}/{project_id}")


def _projects_name(settings: LabelStudioSettings) -> str:
    return f"label-studio/{short_hash(settings.url.rstrip('/'))}/projects/{settings.project}"


def _ever_name(settings: LabelStudioSettings) -> str:
    """Of all projects that were ever used at this address: what was erased is deleted in each."""
    return f"label-studio/{short_hash(settings.url.rstrip('/'))}/ever"


@contextmanager
def exclusive(settings: Settings) -> Iterator[None]:
    """Two pushes at once would send everything twice."""
    lock = settings.workspace.rl / "annotate.lock"
    with explain_os_errors(lock, writing=True):
        make_folder(lock.parent)
    with locked_file(lock, wait_s=0, what="The exchange with Label Studio", mode=0o600):
        yield


def _squeezed(config: Any) -> str:
    return "".join(str(config).split())


def push_mark(project: AnnotationProject) -> str:
    """The position that says whether a push has ended, or tasks may have arrived that were not noted."""
    return f"{project.destination}/push"


def find_sent(api: LabelStudioApi, store: Store, project: AnnotationProject) -> int:
    """After a push that was interrupted, and in a project that was there before: note the tasks that it has.

    Those of items that were erased since are noted too, so that `delete_gone` finds them; they are not counted.
    """
    position = imported.read_position(store, push_mark(project))
    if position is not None and not position["unsure"]:
        return 0
    there: dict[str, str] = {}
    for task in all_tasks(api, project):
        item_id = id_in(task)
        if item_id is not None:
            there.setdefault(item_id, str(task["id"]))
    known = outbox.sent_to(store, project.destination, there)
    own, erased = annotation_tasks.own_items(store, there.keys() - known.keys())
    outbox.mark_sent(store, project.destination, {name: there[name] for name in own | erased}, kind=annotation_tasks.KIND)
    imported.save_position(store, push_mark(project), {"unsure": False})
    return len(own)


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
