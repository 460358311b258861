"""The public API of Langfuse 4.59 and newer: root observations and scores by cursor, scores and OTLP spans in, traces deleted.

    with open_langfuse(settings.langfuse) as langfuse:
        page = langfuse.observations(start, end, cursor=None)          # page.rows, page.cursor: None on the last page

SDK 5 has no list of traces: a trace is read as its root observation. Ingestion is asynchronous, so a row may appear minutes after
its own time; who reads must look back (`overlap_minutes`) and store by id.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from medloop.contracts.base import iso_utc
from medloop.errors import ConfigError
from medloop.sections import LangfuseSettings
from medloop.service import Params, Service, ServiceError, check_address

FIELDS = "core,basic,io,metadata,model,usage,trace_context"
SCORE_FIELDS = "details,subject,annotation"
OBSERVATIONS_A_PAGE = 1000
SCORES_A_PAGE = 100  # more is refused
DELETED_AT_ONCE = 100
API = "/api/public"

Json = dict[str, Any]


class ExpiredCursorError(ServiceError):
    """The cursor is no longer valid: read the window from its start."""


@dataclass(frozen=True)
class LangfusePage:
    rows: tuple[Json, ...]
    cursor: str | None


@contextmanager
def open_langfuse(settings: LangfuseSettings, *, backoff_s: float = 0.5) -> Iterator[LangfuseApi]:
    """The API of the project that the settings name; ConfigError where something is missing."""
    url = check_address("Langfuse", settings.url, "langfuse.url")
    secret = settings.secret_key.get_secret_value()
    if not settings.public_key or not secret:
        raise ConfigError(
            "The keys of the Langfuse project are not set", "Set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY in the environment"
        )
    token = base64.b64encode(f"{settings.public_key}:{secret}".encode()).decode()
    headers = {"authorization": f"Basic {token}", "x-langfuse-sdk-name": "medloop", "accept": "application/json"}
    with Service("Langfuse", url, headers=headers, backoff_s=backoff_s) as service:
        yield LangfuseApi(service, settings.environment)


@dataclass(frozen=True)
class LangfuseApi:
    service: Service
    environment: str = ""

    def project(self) -> str:
        """The id of the project that the keys belong to; positions and ids are of that project."""
        answer = self.service.get(f"{API}/projects", [])
        try:
            return str(answer["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise ServiceError("Langfuse named no project for these keys", "Check the keys of the project") from None

    def observations(self, start: datetime, end: datetime, cursor: str | None) -> LangfusePage:
        """Root observations that began in [start, end)."""
        window: Params = [("fromStartTime", iso_utc(start)), ("toStartTime", iso_utc(end))]
        return self._observations([*window, *self._environment()], cursor)

    def root_of(self, trace_id: str) -> tuple[Json, ...]:
        return self._observations([("traceId", trace_id)], None).rows

    def scores(self, start: datetime, end: datetime, cursor: str | None) -> LangfusePage:
        """Scores with a time in [start, end)."""
        params: Params = [("fields", SCORE_FIELDS), ("limit", SCORES_A_PAGE), ("fromTimestamp", iso_utc(start))]
        return self._page(f"{API}/v3/scores", [*params, ("toTimestamp", iso_utc(end)), *self._environment()], cursor)

    def add_scores(self, scores: Sequence[Json]) -> None:
        """Create scores, or change those whose id and time Langfuse knows."""
        answer = self.service.post(f"{API}/scores", json.dumps(list(scores)).encode(), {"content-type": "application/json"})
        if isinstance(answer, dict) and answer.get("rejected"):
            raise ServiceError(f"Langfuse rejected {answer['rejected']} of {len(scores)} scores", "See the log of Langfuse", 207)

    def add_spans(self, request: Json) -> None:
        """An OTLP `ExportTraceServiceRequest` as JSON."""
        headers = {"content-type": "application/json", "x-langfuse-ingestion-version": "4"}
        self.service.post(f"{API}/otel/v1/traces", json.dumps(request).encode(), headers)

    def delete_traces(self, trace_ids: Sequence[str]) -> None:
        for start in range(0, len(trace_ids), DELETED_AT_ONCE):
            self.service.delete(f"{API}/traces", {"traceIds": list(trace_ids[start : start + DELETED_AT_ONCE])})

    def delete_score(self, score_id: str) -> None:
        """One that Langfuse does not know is gone already."""
        try:
            self.service.delete(f"{API}/scores/{quote(score_id, safe='')}", {})
        except ServiceError as error:
            if error.status != 404:
                raise

    def _environment(self) -> Params:
        return [("environment", self.environment)] if self.environment else []

    def _observations(self, params: Params, cursor: str | None) -> LangfusePage:
        own: Params = [
            ("fields", FIELDS),
            ("expandMetadata", "contexts"),
            ("isRootObservation", "true"),
            ("limit", OBSERVATIONS_A_PAGE),
        ]
        return self._page(f"{API}/v2/observations", [*own, *params], cursor)

    def _page(self, path: str, params: Params, cursor: str | None) -> LangfusePage:
        try:
            answer = self.service.get(path, [*params, *([("cursor", cursor)] if cursor else [])])
        except ServiceError as error:
            if cursor and error.status == 400:
                raise ExpiredCursorError(error.what, error.to_do, error.status) from None
            raise
        rows = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ServiceError("Langfuse sent a page in a form that is unknown here", "It must be version 4.59 or newer")
        after = (answer.get("meta") or {}).get("cursor")
        return LangfusePage(tuple(rows), after if isinstance(after, str) and after else None)
