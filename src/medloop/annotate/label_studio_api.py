"""The API of Label Studio 1.23 as far as it is used: projects, tasks in and out, users.

    with open_label_studio(settings.label_studio) as api:
        api.import_tasks(7, [{"data": {...}, "meta": {...}}])            # [101]: their ids
        page = api.tasks(7, after=0, since=None)                         # by id, so a task that is deleted moves no other

A personal access token (a JWT) opens nothing itself: it buys an access token for five minutes, and a new one after a 401. A
legacy token is sent as it is; new organisations have them switched off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from medloop.contracts.base import iso_utc
from medloop.errors import ConfigError
from medloop.sections import LabelStudioSettings
from medloop.service import Params, Service, ServiceError, check_address

PAGE = 100
JSON = {"content-type": "application/json"}

Json = dict[str, Any]


@contextmanager
def open_label_studio(settings: LabelStudioSettings, *, backoff_s: float = 0.5) -> Iterator[LabelStudioApi]:
    """The API at the address of the settings; ConfigError where something is missing."""
    url = check_address("Label Studio", settings.url, "label_studio.url")
    token = settings.token.get_secret_value()
    if not token:
        raise ConfigError("The token of Label Studio is not set", "Set LABEL_STUDIO_API_KEY in the environment")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError("label_studio.token is not a token of Label Studio", "Copy it from Account & Settings there")
    with Service("Label Studio", url, headers={"accept": "application/json"}, backoff_s=backoff_s) as service:
        yield LabelStudioApi(service, token)


@dataclass
class LabelStudioApi:
    service: Service
    token: str = field(repr=False)
    access: str = field(default="", repr=False)

    def projects(self) -> Iterator[Json]:
        page = 1
        while True:
            params: Params = [("page", page), ("page_size", PAGE)]
            answer = self._get("/api/projects/", params)
            yield from _rows(answer, "results")
            if not answer.get("next"):
                return
            page += 1

    def project(self, project_id: int) -> Json | None:
        """None where there is none of this id; a 403 may pass, so it is an error."""
        try:
            answer = self._get(f"/api/projects/{project_id}/", [])
        except ServiceError as error:
            if error.status == 404:
                return None
            raise
        return answer if isinstance(answer, dict) else None

    def create_project(self, title: str, config: str, description: str) -> int:
        body = {"title": title, "description": description, "label_config": config, "show_collab_predictions": False}
        return _number(self._post("/api/projects/", body), "id")

    def import_tasks(self, project_id: int, tasks: Sequence[Json]) -> list[int]:
        """Tried once: after an answer that was lost the tasks may be there."""
        answer = self._post(f"/api/projects/{project_id}/import?return_task_ids=1", list(tasks), attempts=1)
        ids = answer.get("task_ids") if isinstance(answer, dict) else None
        if not isinstance(ids, list) or len(ids) != len(tasks) or not all(isinstance(n, int) for n in ids):
            raise ServiceError("Label Studio did not say which tasks it has made", "Run it again: it looks for them")
        return ids

    def tasks(self, project_id: int, *, after: int, since: datetime | None) -> list[Json]:
        """The next tasks by id, with their annotations; with `since` those that changed at that time or later."""
        wanted = [_filter("tasks:id", "greater", "Number", after)]
        if since is not None:
            wanted.append(_filter("tasks:updated_at", "greater_or_equal", "Datetime", iso_utc(since)))
        query = {"ordering": ["tasks:id"], "filters": {"conjunction": "and", "items": wanted}}
        params: Params = [("project", project_id), ("fields", "all"), ("page", 1), ("page_size", PAGE)]
        try:
            answer = self._get("/api/tasks/", [*params, ("query", json.dumps(query))])
        except ServiceError as error:
            if error.status == 404:  # a page after the last one
                return []
            raise
        tasks = _rows(answer, "tasks")
        numbers = [_number(task, "id") for task in tasks]
        if numbers != sorted(set(numbers)) or (numbers and numbers[0] <= after):
            raise ServiceError("Label Studio sent tasks in another order than asked for", "It must be version 1.23 or newer")
        return tasks

    def delete_task(self, task_id: int) -> None:
        """One that is not there is gone already."""
        try:
            self._authorized(lambda headers: self.service.delete(f"/api/tasks/{task_id}/", {}, headers))
        except ServiceError as error:
            if error.status != 404:
                raise

    def annotators(self) -> dict[int, str]:
        """The e-mail address of each user by number."""
        answer = self._get("/api/users/", [])
        rows = answer if isinstance(answer, list) else _rows(answer, "results")
        return {_number(row, "id"): str(row.get("email") or "").strip().lower() for row in rows if isinstance(row, dict)}

    def _get(self, path: str, params: Params) -> Any:
        return self._authorized(lambda headers: self.service.get(path, params, headers))

    def _post(self, path: str, body: Any, *, attempts: int | None = None) -> Any:
        content = json.dumps(body, ensure_ascii=False).encode()
        return self._authorized(lambda headers: self.service.post(path, content, {**JSON, **headers}, attempts=attempts))

    def _authorized(self, call: Callable[[dict[str, str]], Any]) -> Any:
        """A call with the right header; an access token that has run out is renewed once."""
        if self.token.count(".") != 2:
            return self._explained(call, {"authorization": f"Token {self.token}"})
        if self.access:
            try:
                return call({"authorization": f"Bearer {self.access}"})
            except ServiceError as error:
                if error.status != 401:
                    raise
        answer = self._explained(
            lambda headers: self.service.post("/api/token/refresh/", json.dumps({"refresh": self.token}).encode(), headers), JSON
        )
        if not isinstance(answer, dict) or not isinstance(answer.get("access"), str):
            raise ServiceError("Label Studio gave no access token", "It must be version 1.23 or newer")
        self.access = answer["access"]
        return self._explained(call, {"authorization": f"Bearer {self.access}"})

    def _explained(self, call: Callable[[dict[str, str]], Any], headers: dict[str, str]) -> Any:
        try:
            return call(headers)
        except ServiceError as error:
            if error.status != 401:
                raise
            raise ServiceError(
                "Label Studio refused the token (401)",
                "Set a personal access token; a legacy token works only where the organisation allows it",
                401,
            ) from None


def _filter(name: str, operator: str, kind: str, value: Any) -> Json:
    return {"filter": f"filter:{name}", "operator": operator, "type": kind, "value": value}


def _rows(answer: Any, name: str) -> list[Json]:
    rows = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ServiceError("Label Studio sent a page in a form that is unknown here", "It must be version 1.23 or newer")
    return rows


def _number(row: Any, name: str) -> int:
    value = row.get(name) if isinstance(row, dict) else None
    if not isinstance(value, int) or isinstance(value, bool):
        raise ServiceError("Label Studio sent a row without its number", "It must be version 1.23 or newer")
    return value
