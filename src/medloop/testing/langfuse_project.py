"""The data of a Langfuse project, answered as its public API 4.59 answers: field groups, filters, cursors, score types.

Rows are kept in the form of the API. An OTLP span becomes an observation as Langfuse makes it, as far as the parts that medloop
reads go. `hidden` holds rows that were ingested but that reads do not show yet.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

GROUPS = {
    "core": ("id", "traceId", "startTime", "endTime", "projectId", "parentObservationId", "type"),
    "basic": ("name", "level", "statusMessage", "version", "environment", "bookmarked", "public", "userId", "sessionId",
              "isRootObservation"),
    "time": ("completionStartTime", "createdAt", "updatedAt"),
    "io": ("input", "output"),
    "metadata": ("metadata",),
    "model": ("model", "internalModelId", "modelParameters"),
    "usage": ("usageDetails", "costDetails", "totalCost", "usagePricingTierName"),
    "prompt": ("promptId", "promptName", "promptVersion"),
    "metrics": ("latency", "timeToFirstToken"),
    "trace_context": ("tags", "release", "traceName"),
}  # fmt: skip
SCORE_CORE = ("id", "projectId", "name", "value", "dataType", "source", "timestamp", "environment", "createdAt", "updatedAt")
SCORE_GROUPS = {
    "details": ("comment", "configId", "metadata"),
    "subject": ("subject",),
    "annotation": ("authorUserId", "queueId"),
}
LONGEST_METADATA = 200

Json = dict[str, Any]
Query = Mapping[str, list[str]]


class BadRequest(Exception):
    """Answered with 400 and this message."""


@dataclass
class LangfuseProject:
    project_id: str = "proj-1"
    observations: dict[str, Json] = field(default_factory=dict)
    scores: dict[str, Json] = field(default_factory=dict)
    hidden: dict[str, Json] = field(default_factory=dict)  # observations that reads do not show yet
    deleted: list[str] = field(default_factory=list)  # traces
    epoch: int = 0  # cursors of an older epoch have expired
    lock: threading.RLock = field(default_factory=threading.RLock)

    def add_trace(
        self, trace_id: str, question: Any, answer: Any, start: datetime, *, hidden: bool = False, **more: Any
    ) -> str:  # fmt: skip
        """One root observation; its id is returned."""
        row = {
            "id": f"{trace_id}-root", "traceId": trace_id, "startTime": _iso(start),
            "endTime": _iso(start + timedelta(seconds=2)), "projectId": self.project_id, "parentObservationId": None,
            "type": "GENERATION", "name": "chat", "level": "DEFAULT", "environment": "production", "isRootObservation": True,
            "userId": None, "sessionId": None, "version": None, "input": _raw(question), "output": _raw(answer), "metadata": {},
            "model": "clinic-7b", "usageDetails": {"input": 12, "output": 34}, "tags": [], "release": None, "traceName": "triage",
            **more,
        }  # fmt: skip
        with self.lock:
            (self.hidden if hidden else self.observations)[row["id"]] = row
        return str(row["id"])

    def show_hidden(self) -> None:
        with self.lock:
            self.observations |= self.hidden
            self.hidden.clear()

    def add_score(self, score_id: str, trace_id: str, value: Any, time: datetime, **more: Any) -> None:
        kind = "BOOLEAN" if isinstance(value, bool) else "CATEGORICAL" if isinstance(value, str) else "NUMERIC"
        with self.lock:
            self.scores[score_id] = {
                "id": score_id, "projectId": self.project_id, "name": "user-feedback", "value": value, "dataType": kind,
                "source": "API", "timestamp": _iso(time), "environment": "production", "createdAt": _iso(time),
                "updatedAt": _iso(time), "comment": None, "configId": None, "metadata": {}, "authorUserId": None,
                "queueId": None, "subject": {"kind": "trace", "id": trace_id}, **more,
            }  # fmt: skip

    def read_observations(self, query: Query) -> Json:
        if _one(query, "parseIoAsJson") == "true":
            raise BadRequest("parseIoAsJson is not supported")
        limit = _limit(query, most=1000)
        groups = ["core", *(_one(query, "fields") or "basic").split(",")]
        if unknown := [name for name in groups if name not in GROUPS]:
            raise BadRequest(f"Unknown field group {unknown[0]}")
        with self.lock:
            rows = [row for row in self.observations.values() if _wanted(row, query, "startTime", "StartTime")]
        wanted = {"traceId": "traceId", "name": "name", "userId": "userId", "sessionId": "sessionId", "type": "type"}
        for parameter, column in wanted.items():
            if (value := _one(query, parameter)) is not None:
                rows = [row for row in rows if row.get(column) == value]
        if (root := _one(query, "isRootObservation")) is not None:
            rows = [row for row in rows if row["isRootObservation"] is (root == "true")]
        page, cursor = self._page(rows, "startTime", limit, query)
        names = [name for group in dict.fromkeys(groups) for name in GROUPS[group]]
        whole = (_one(query, "expandMetadata") or "").split(",")
        data = [{name: _cut(row.get(name), whole) if name == "metadata" else row.get(name) for name in names} for row in page]
        return {"data": data, "meta": {"cursor": cursor} if cursor else {}}

    def read_scores(self, query: Query) -> Json:
        limit = _limit(query, most=100)
        groups = [name for name in (_one(query, "fields") or "").split(",") if name]
        if unknown := [name for name in groups if name not in SCORE_GROUPS]:
            raise BadRequest(f"Unknown field group {unknown[0]}")
        with self.lock:
            rows = [row for row in self.scores.values() if _wanted(row, query, "timestamp", "Timestamp")]
        for parameter in ("id", "name", "source", "dataType"):
            if values := query.get(parameter):
                rows = [row for row in rows if row[parameter] in values]
        if (trace := _one(query, "traceId")) is not None:
            rows = [row for row in rows if trace in (row["subject"].get("id"), row["subject"].get("traceId"))]
        page, cursor = self._page(rows, "timestamp", limit, query)
        names = [*SCORE_CORE, *(name for group in groups for name in SCORE_GROUPS[group])]
        meta = {"limit": limit, **({"cursor": cursor} if cursor else {})}
        return {"data": [{name: row.get(name) for name in names} for row in page], "meta": meta}

    def write_scores(self, body: Any) -> tuple[int, Json]:
        """An array of scores, or one; 207 where some are refused."""
        errors, taken = [], 0
        for given in body if isinstance(body, list) else [body]:
            if problem := _problem(given):
                errors.append({"message": problem})
                continue
            taken += 1
            kind = given.get("dataType") or ("CATEGORICAL" if isinstance(given["value"], str) else "NUMERIC")
            value = bool(given["value"]) if kind == "BOOLEAN" else given["value"]
            trace = given.get("traceId")
            subject = {"kind": "trace", "id": trace} if trace else {"kind": "session", "id": given.get("sessionId")}
            if given.get("observationId"):
                subject = {"kind": "observation", "id": given["observationId"], "traceId": trace}
            time = _time(given["timestamp"]) if given.get("timestamp") else datetime.now(UTC)
            own = {key: given.get(key) for key in ("comment", "configId", "metadata", "queueId")}
            self.add_score(
                given.get("id") or f"score-{len(self.scores)}", "", value, time, name=given["name"], dataType=kind,
                source=given.get("source") or "API", environment=given.get("environment") or "default", subject=subject, **own,
            )  # fmt: skip
        return (207, {"accepted": taken, "rejected": len(errors), "errors": errors}) if errors else (202, {"message": "Accepted"})

    def write_spans(self, request: Json) -> None:
        """OTLP in its JSON form; ids are hexadecimal."""
        for resource in request.get("resourceSpans", ()):
            shared = _attributes(resource.get("resource", {}))
            for scope in resource.get("scopeSpans", ()):
                for span in scope.get("spans", ()):
                    self._add_span(span, {**shared, **_attributes(span)})

    def _add_span(self, span: Json, values: Json) -> None:
        start = datetime.fromtimestamp(int(span["startTimeUnixNano"]) / 1e9, UTC)
        end = datetime.fromtimestamp(int(span["endTimeUnixNano"]) / 1e9, UTC) if span.get("endTimeUnixNano") else None
        usage = values.get("langfuse.observation.usage_details")
        prefix = "langfuse.trace.metadata."
        metadata = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
        with self.lock:
            self.observations[span["spanId"]] = {
                "id": span["spanId"], "traceId": span["traceId"], "startTime": _iso(start), "endTime": _iso(end) if end else None,
                "projectId": self.project_id, "parentObservationId": span.get("parentSpanId") or None,
                "isRootObservation": not span.get("parentSpanId"), "name": span.get("name"), "level": "DEFAULT",
                "type": str(values.get("langfuse.observation.type", "span")).upper(),
                "environment": values.get("langfuse.environment", "default"), "version": values.get("langfuse.version"),
                "userId": values.get("user.id") or values.get("langfuse.user.id"),
                "sessionId": values.get("session.id") or values.get("langfuse.session.id"),
                "input": _first(values, "langfuse.observation.input", "langfuse.trace.input", "gen_ai.input.messages"),
                "output": _first(values, "langfuse.observation.output", "langfuse.trace.output", "gen_ai.output.messages"),
                "metadata": metadata,
                "model": _first(values, "langfuse.observation.model.name", "gen_ai.response.model", "gen_ai.request.model"),
                "usageDetails": json.loads(usage) if usage else {
                    "input": values.get("gen_ai.usage.input_tokens"), "output": values.get("gen_ai.usage.output_tokens")},
                "traceName": values.get("langfuse.trace.name"), "release": values.get("langfuse.release"),
                "tags": values.get("langfuse.trace.tags") or [],
            }  # fmt: skip

    def delete_traces(self, trace_ids: list[str]) -> None:
        with self.lock:
            self.deleted += trace_ids
            self.observations = {key: row for key, row in self.observations.items() if row["traceId"] not in trace_ids}
            self.scores = {
                key: row
                for key, row in self.scores.items()
                if not {row["subject"].get("id"), row["subject"].get("traceId")} & set(trace_ids)
            }

    def _page(self, rows: list[Json], time: str, limit: int, query: Query) -> tuple[list[Json], str | None]:
        """Newest first; the cursor names the last row of the page before."""
        rows.sort(key=lambda row: (row[time], row["id"]), reverse=True)
        if (cursor := _one(query, "cursor")) is not None:
            try:
                epoch, last_time, last_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
            except ValueError:
                raise BadRequest("Invalid cursor") from None
            if epoch != self.epoch:
                raise BadRequest("Invalid cursor")
            rows = [row for row in rows if (row[time], row["id"]) < (last_time, last_id)]
        page = rows[:limit]
        if len(rows) <= limit:
            return page, None
        last = json.dumps([self.epoch, page[-1][time], page[-1]["id"]])
        return page, base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")


def _problem(score: Any) -> str:
    if not isinstance(score, dict) or not score.get("name") or score.get("value") is None:
        return "name and value are required"
    if not (score.get("traceId") or score.get("sessionId") or score.get("datasetRunId")):
        return "traceId, sessionId or datasetRunId is required"
    if score.get("timestamp") and not re.search(r"(?:Z|[+-]\d\d:\d\d)$", score["timestamp"]):
        return "timestamp needs an offset"
    if score.get("dataType") == "BOOLEAN" and score["value"] not in (0, 1):
        return "a BOOLEAN is 0 or 1"
    return ""


def _wanted(row: Json, query: Query, column: str, suffix: str) -> bool:
    start, end = _one(query, f"from{suffix}"), _one(query, f"to{suffix}")
    time = _time(row[column])
    environments = query.get("environment")
    return (
        (start is None or time >= _time(start))
        and (end is None or time < _time(end))
        and (not environments or row["environment"] in environments)
    )


def _limit(query: Query, most: int) -> int:
    limit = int(_one(query, "limit") or 50)
    if not 1 <= limit <= most:
        raise BadRequest(f"limit must be at most {most}")
    return limit


def _one(query: Query, name: str) -> str | None:
    return query[name][0] if query.get(name) else None


def _first(values: Json, *names: str) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _attributes(holder: Json) -> Json:
    values: Json = {}
    for entry in holder.get("attributes", ()):
        kind, value = next(iter(entry["value"].items()))
        if kind == "arrayValue":
            value = [next(iter(item.values())) for item in value.get("values", ())]
        values[entry["key"]] = int(value) if kind == "intValue" else value
    return values


def _cut(metadata: Any, whole: list[str]) -> Any:
    if not isinstance(metadata, dict):
        return metadata
    return {
        key: value if key in whole or not isinstance(value, str) else value[:LONGEST_METADATA] for key, value in metadata.items()
    }


def _raw(value: Any) -> str | None:
    """Inputs and outputs are raw strings in the API."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
