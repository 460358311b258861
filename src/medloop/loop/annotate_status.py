"""How the exchange with Label Studio stands, from the database alone: nothing is asked over the network."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from medloop.loop.annotate_push import KINDS, NEGATIVE
from medloop.loop.annotate_server import known_projects
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import annotation_tasks, imported, outbox


@dataclass(frozen=True)
class ProjectStatus:
    """`problems` has, by task and annotation, why it was not taken."""

    name: str
    address: str
    sent: int
    records: int
    to_delete: int
    pulled: str | None
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AnnotationStatus:
    waiting: int
    projects: tuple[ProjectStatus, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def annotation_status(settings: Settings, store: Store) -> AnnotationStatus:
    server = settings.label_studio
    found, waiting = [], 0
    projects = known_projects(store, server) if server.url else []
    for form, kinds in KINDS.items():
        last = next((project.destination for project in projects if project.form.name == form), "")
        waiting += annotation_tasks.count_waiting(store, last, NEGATIVE, kinds=kinds)
    for project in projects:
        position = imported.read_position(store, f"{project.destination}/pull") or {}
        address = f"{server.url.rstrip('/')}/projects/{project.project_id}/data"
        found.append(
            ProjectStatus(
                str(project.form.name),
                address,
                outbox.count_sent(store, project.destination).get(annotation_tasks.KIND, 0),
                position.get("records", 0),
                len(annotation_tasks.gone(store, project.destination)),
                position.get("pulled"),
                position.get("problems", {}),
            )
        )
    return AnnotationStatus(waiting, tuple(found))
