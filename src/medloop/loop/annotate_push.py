"""Push to Label Studio: answers that people complained about, from the review queue, as tasks for annotators.

    push_negatives(settings, store, most=200, actor="user:li")        # PushCounts(pushed=20, ...)

Every text is scrubbed and assessed again before it leaves; one that may still name a person stays here, and so does every text
about a person who has withdrawn a consent. Each task carries our id: after an interruption the tasks that had arrived are found
by it, so nothing is sent twice. What was erased here since is deleted there first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass

from medloop.annotate.label_studio_api import LabelStudioApi, open_label_studio
from medloop.annotate.tasks import task_of
from medloop.feedback.review.queue import scrub_content
from medloop.loop.annotate_server import (
    FORMS,
    AnnotationProject,
    DeletedTasks,
    Json,
    delete_gone,
    ensure_project,
    exclusive,
    find_sent,
    known_projects,
    note,
    push_mark,
)
from medloop.loop.feedback import queue_new_complaints
from medloop.privacy.consent import Register
from medloop.service import ServiceError
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import annotation_tasks, imported, outbox, review_queue
from medloop.store.records.annotation_tasks import AnnotatedItem

NEGATIVE = ("thumbs_down", "critical", "raters_disagree", "disagreement")
BATCH = 50
TRIES = 3  # of a batch whose answer was lost
KINDS = {"answers": ("rate", "correct"), "comparisons": ("compare",)}


@dataclass
class PushCounts:
    """`held`: texts that may name a person; `refused_consent`: about people who have withdrawn a consent."""

    pushed: int = 0
    found_there: int = 0
    held: int = 0
    refused_consent: int = 0
    deleted: int = 0
    not_deleted: int = 0
    projects: tuple[int, ...] = ()

    def delete(self, gone: DeletedTasks) -> None:
        self.deleted += gone.deleted
        self.not_deleted += gone.not_deleted

    def as_json(self) -> Json:
        return asdict(self)


def push_negatives(
    settings: Settings, store: Store, *, most: int = 200, actor: str, backoff_s: float = 0.5,
    on_rows: Callable[[int], object] = lambda count: None,
) -> PushCounts:  # fmt: skip
    """Push up to `most` items that Label Studio does not have yet; safe to stop and to repeat at any time."""
    counts, server = PushCounts(), settings.label_studio
    queue_new_complaints(store)
    with exclusive(settings), open_label_studio(server, backoff_s=backoff_s) as api:
        known = known_projects(store, server)
        counts.found_there += sum(find_sent(api, store, project) for project in known)
        counts.delete(delete_gone(api, store, known, actor=actor))
        register = Register.of(store)
        for form in FORMS:
            if form.name == "comparisons" and not annotation_tasks.count_waiting(store, "", NEGATIVE, kinds=KINDS[form.name]):
                continue  # no project for what does not exist
            project = ensure_project(api, store, server, form)
            counts.projects = (*counts.projects, project.project_id)
            pusher = _Pusher(api, store, project, register, actor, counts, on_rows)
            if project not in known:
                counts.found_there += find_sent(api, store, project)
                counts.delete(delete_gone(api, store, [project], actor=actor))
            pusher.push(most - counts.pushed)
    return counts


@dataclass
class _Pusher:
    api: LabelStudioApi
    store: Store
    project: AnnotationProject
    register: Register
    actor: str
    counts: PushCounts
    on_rows: Callable[[int], object]

    def push(self, most: int) -> None:
        stay: set[str] = set()
        while most > 0:
            items = self._next(min(most, BATCH), stay)
            if not items:
                return
            tasks = {item.item_id: task for item in items if (task := self._task(item)) is not None}
            stay |= {item.item_id for item in items} - tasks.keys()
            sent = self._send(tasks) if tasks else 0
            most -= sent
            self.on_rows(sent)

    def _next(self, most: int, seen: Collection[str]) -> list[AnnotatedItem]:
        """The next items; those that stay here are not marked as sent, so they are passed over."""
        items = annotation_tasks.waiting(
            self.store, self.project.destination, NEGATIVE, kinds=KINDS[self.project.form.name], most=most + len(seen),
            actor=self.actor,
        )  # fmt: skip
        return [item for item in items if item.item_id not in seen][:most]

    def _task(self, item: AnnotatedItem) -> Json | None:
        """The task of an item without identifiers; None where it may not leave."""
        if any(not all(self.register.words.get(subject, {}).values()) for subject in item.subjects):
            self.counts.refused_consent += 1
            return None
        clean = scrub_content(item.content.prompt, item.content.answers, item.content.contexts)
        if clean is None or clean.doubted:
            self.counts.held += 1
            return None
        texts = {"prompt": clean.prompt, "answers": clean.answers, "contexts": clean.contexts}
        content = item.content.model_copy(update=texts)
        if content != item.content:  # what comes back is about the text as it was shown
            review_queue.rewrite(self.store, item.item_id, content, actor=self.actor)
        return task_of(item.item_id, item.kind, content)

    def _send(self, tasks: dict[str, Json]) -> int:
        """Send a batch once. Where the answer is lost, look which tasks have arrived before anything is sent again."""
        before, left = len(tasks), dict(tasks)
        for attempt in range(TRIES):
            imported.save_position(self.store, push_mark(self.project), {"unsure": True})
            try:
                numbers = self.api.import_tasks(self.project.project_id, list(left.values()))
            except ServiceError as error:
                if attempt + 1 == TRIES or (error.status != 0 and error.status != 429 and error.status < 500):
                    raise
                self.api.service.sleep(self.api.service.backoff_s * 2**attempt)
                find_sent(self.api, self.store, self.project)
                arrived = outbox.sent_to(self.store, self.project.destination, left)
                left = {name: task for name, task in left.items() if name not in arrived}
                if not left:
                    break
                continue
            remote = dict(zip(left, map(str, numbers), strict=True))
            outbox.mark_sent(self.store, self.project.destination, remote, kind=annotation_tasks.KIND)
            break
        imported.save_position(self.store, push_mark(self.project), {"unsure": False})
        self.counts.pushed += before
        note(self.store, self.actor, "annotate.push", self.project.destination, {"tasks": before})
        return before
