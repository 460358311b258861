"""A Label Studio on the loopback interface that keeps its contract and can misbehave as the real one has been seen to.

    with LabelStudioServer() as server:
        Settings(home=..., label_studio=server.settings(raters="li@example.org=dr.li"))
        server.annotate(task_id, [{"from_name": "rating", ...}], user=2)
    with LabelStudioServer(fault=lambda number, request: "error_500" if number == 3 else "ok"): ...

Like the real one it takes any result without looking at the label config. Faults: unauthorized (401), rate (429, Retry-After),
error_500, not_json, lost (the request is done and the answer never comes), slow, repeated (the tasks of the page before).
`make test-label-studio` runs the same exchange against the real server.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import SecretStr

from medloop.sections import LabelStudioSettings
from medloop.testing.loopback import JsonHandler, ThreadedServer

LEGACY = "0123456789abcdef0123456789abcdef01234567"
REFRESH = "eyJh.refresh.c2ln"

Json = dict[str, Any]
Fault = Callable[[int, str], str]  # (number of the request, "GET /api/tasks/") -> name


class LabelStudioServer(ThreadedServer):
    """Runs in threads of its own; what it holds is in `projects`, `tasks` and `annotations`."""

    def __init__(self, *, fault: Fault = lambda number, request: "ok", legacy_tokens: bool = True) -> None:
        self.fault, self.legacy_tokens = fault, legacy_tokens
        self.projects: dict[int, Json] = {}
        self.tasks: dict[int, Json] = {}
        self.users = {1: "admin@example.org", 2: "li@example.org", 3: "wu@example.org", 4: "ann@example.org"}
        self.requests: list[str] = []
        self.access, self.accesses = "", 0
        self.now = datetime.now(UTC) - timedelta(hours=1)
        self.locked_tasks: set[int] = set()  # which it refuses to delete
        self._last_tasks: Any = None
        self._numbers, self._lock = 0, threading.Lock()
        super().__init__(_handler(self), wait_for_threads=True)

    def settings(self, token: str = LEGACY, **more: Any) -> LabelStudioSettings:
        return LabelStudioSettings(url=self.url, token=SecretStr(token), **more)

    def annotate(self, task_id: int, result: Any, *, user: int = 2, **more: Any) -> Json:
        """An annotation as the pages of Label Studio make it; nothing is checked, as there."""
        with self._lock:
            row = {"id": self._number(), "result": result, "completed_by": user, "was_cancelled": False}
            row |= {"created_at": self._tick(), "updated_at": self._stamp(), **more}
            self.tasks[task_id]["annotations"].append(row)
            self.tasks[task_id]["updated_at"] = self._stamp()
        return row

    def change(self, task_id: int, annotation: Json, result: Any) -> None:
        with self._lock:
            annotation |= {"result": result, "updated_at": self._tick()}
            self.tasks[task_id]["updated_at"] = self._stamp()

    def add_task(self, project: int, data: Json, meta: Json | None = None) -> int:
        with self._lock:
            return self._add_task(project, {"data": data, "meta": meta or {}})

    def _add_task(self, project: int, task: Json) -> int:
        number = self._number()
        row = {"id": number, "project": project, "data": task["data"], "meta": task.get("meta", {}), "annotations": []}
        self.tasks[number] = {**row, "created_at": self._tick(), "updated_at": self._stamp()}
        return number

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _tick(self) -> str:
        self.now += timedelta(seconds=1)
        return self._stamp()

    def _stamp(self) -> str:
        return self.now.isoformat().replace("+00:00", "Z")

    def answer(self, method: str, target: str, authorization: str, body: Any) -> tuple[int, Any]:
        """One request; also for tests that look at a request themselves."""
        parts = urlsplit(target)
        with self._lock:
            if (method, parts.path) == ("POST", "/api/token/refresh/"):
                return self._refresh(body)
            if not self._allowed(authorization):
                return 401, {"detail": "Authentication credentials were not provided or have run out."}
            return self._route(method, parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()}, body)

    def _refresh(self, body: Any) -> tuple[int, Any]:
        if not isinstance(body, dict) or body.get("refresh") != REFRESH:
            return 401, {"detail": "Token is invalid"}
        self.accesses += 1
        self.access = f"access-{self.accesses}"
        return 200, {"access": self.access}

    def _allowed(self, authorization: str) -> bool:
        legacy = self.legacy_tokens and authorization == f"Token {LEGACY}"
        return legacy or (bool(self.access) and authorization == f"Bearer {self.access}")

    def _route(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if path == "/api/users/":
            return 200, [{"id": number, "email": email} for number, email in self.users.items()]
        if path == "/api/projects/":
            if method == "POST":
                number = self._number()
                self.projects[number] = {"id": number, "title": body["title"], "label_config": body["label_config"]}
                return 201, self.projects[number]
            return 200, {"count": len(self.projects), "next": None, "results": list(self.projects.values())}
        if found := re.fullmatch(r"/api/projects/(\d+)/", path):
            row = self.projects.get(int(found[1]))
            return (200, row) if row else (404, {"detail": "Not found."})
        if found := re.fullmatch(r"/api/projects/(\d+)/import", path):
            numbers = [self._add_task(int(found[1]), task) for task in body]
            return 201, {"task_count": len(numbers), "task_ids": numbers}
        if path == "/api/tasks/" and method == "GET":
            return self._tasks(int(query["project"]), json.loads(query["query"]), int(query["page_size"]))
        if (found := re.fullmatch(r"/api/tasks/(\d+)/", path)) and method == "DELETE":
            if int(found[1]) in self.locked_tasks:
                return 403, {"detail": "You do not have permission to perform this action."}
            gone = self.tasks.pop(int(found[1]), None)
            return (204, None) if gone else (404, {"detail": "Not found."})
        return 404, {"detail": "Not found."}

    def _tasks(self, project: int, query: Json, size: int) -> tuple[int, Any]:
        rows = [task for task in self.tasks.values() if task["project"] == project]
        for item in query["filters"]["items"]:
            name, value = item["filter"].removeprefix("filter:tasks:"), item["value"]
            if name == "id":
                rows = [row for row in rows if row["id"] > value]
            else:
                rows = [row for row in rows if datetime.fromisoformat(row["updated_at"]) >= datetime.fromisoformat(value)]
        rows.sort(key=lambda row: int(row["id"]))
        return 200, {"total": len(rows), "tasks": json.loads(json.dumps(rows[:size]))}


def _handler(server: LabelStudioServer) -> type[BaseHTTPRequestHandler]:
    class LabelStudioHandler(JsonHandler):
        protocol_version = "HTTP/1.0"  # one request a connection: nothing stays open

        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def do_DELETE(self) -> None:
            self._answer("DELETE")

        def _answer(self, method: str) -> None:
            body = self.body()
            request = f"{method} {urlsplit(self.path).path}"
            fault = server.fault(len(server.requests), request)
            server.requests.append(request)
            if fault in STATUS:
                self.reply(STATUS[fault], {"detail": "no"}, {"retry-after": "0"} if fault == "rate" else {})
                return
            status, answer = server.answer(method, self.path, self.headers.get("authorization") or "", body)
            if fault == "repeated" and server._last_tasks is not None and isinstance(answer, dict) and "tasks" in answer:
                answer = server._last_tasks
            if isinstance(answer, dict) and "tasks" in answer:
                server._last_tasks = answer
            if fault == "slow":
                time.sleep(0.05)
            if fault == "lost":
                self.close_connection = True
            elif fault == "not_json":
                self.reply(status, b"<html>")
            else:
                self.reply(status, answer)

    return LabelStudioHandler


STATUS = {"unauthorized": 401, "rate": 429, "error_500": 500}
