"""Where traces and feedback can be sent: Langfuse, and any collector that takes OTLP over HTTP.

A destination gets records that may leave, with texts that are scrubbed or absent. It gives each the same id every time, so that
sending again after a crash changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from medloop.contracts import Feedback, Trace
from medloop.contracts.base import iso_utc
from medloop.errors import ConfigError
from medloop.sections import LangfuseSettings, TelemetrySettings
from medloop.service import Service, check_address
from medloop.telemetry.genai_spans import ExchangeTexts, export_request, feedback_span, otel_trace_id, trace_span
from medloop.telemetry.langfuse_api import LangfuseApi, open_langfuse

SCORE_NAME = "user-feedback"

Json = dict[str, Any]


@dataclass(frozen=True)
class OutgoingTrace:
    trace: Trace
    texts: ExchangeTexts | None


@dataclass(frozen=True)
class OutgoingFeedback:
    """`trace_id` is ours; `comment` only where it may leave."""

    feedback: Feedback
    trace_id: str
    comment: str | None


class Destination(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def sends_text(self) -> bool: ...

    def send_traces(self, traces: Sequence[OutgoingTrace]) -> dict[str, str]:
        """Remote ids by trace id."""

    def send_feedback(self, feedback: Sequence[OutgoingFeedback]) -> dict[str, str]:
        """Remote ids by feedback id."""

    def delete_traces(self, remote_ids: Sequence[str]) -> bool:
        """Whether the destination can delete."""

    def delete_feedback(self, remote_ids: Sequence[str]) -> bool:
        """The same for ratings."""


@dataclass(frozen=True)
class LangfuseDestination:
    api: LangfuseApi
    sends_text: bool
    environment: str = ""
    name: str = "langfuse"

    def send_traces(self, traces: Sequence[OutgoingTrace]) -> dict[str, str]:
        environment = {"langfuse.environment": self.environment} if self.environment else {}
        self.api.add_spans(export_request([trace_span(out.trace, out.texts, _langfuse(out)) for out in traces], environment))
        return {out.trace.trace_id: otel_trace_id(out.trace.trace_id) for out in traces}

    def send_feedback(self, feedback: Sequence[OutgoingFeedback]) -> dict[str, str]:
        scores = [score for out in feedback if (score := self._score(out)) is not None]
        if scores:
            self.api.add_scores(scores)
        return {out.feedback.feedback_id: out.feedback.feedback_id for out in feedback}

    def delete_traces(self, remote_ids: Sequence[str]) -> bool:
        self.api.delete_traces(remote_ids)
        return True

    def delete_feedback(self, remote_ids: Sequence[str]) -> bool:
        for remote_id in remote_ids:
            self.api.delete_score(remote_id)
        return True

    def _score(self, out: OutgoingFeedback) -> Json | None:
        """A thumb as BOOLEAN, else stars as NUMERIC, else a type as CATEGORICAL; the id makes a repeated one an update."""
        feedback = out.feedback
        if feedback.thumb is not None:
            value: Json = {"value": int(feedback.thumb == "up"), "dataType": "BOOLEAN", "name": SCORE_NAME}
        elif feedback.rating is not None:
            value = {"value": feedback.rating, "dataType": "NUMERIC", "name": f"{SCORE_NAME}-rating"}
        elif feedback.feedback_type is not None:
            value = {"value": feedback.feedback_type, "dataType": "CATEGORICAL", "name": SCORE_NAME}
        else:
            return None
        links = {"id": feedback.feedback_id, "traceId": otel_trace_id(out.trace_id), "timestamp": iso_utc(feedback.timestamp)}
        extra = {"comment": out.comment} if out.comment else {}
        if self.environment:
            extra["environment"] = self.environment
        return {**value, **links, **extra, "metadata": {"critical": feedback.critical}}


@dataclass(frozen=True)
class OtlpDestination:
    """A collector; what it has received it keeps, and medloop cannot delete it there."""

    service: Service
    path: str
    sends_text: bool
    name: str = "otlp"

    def send_traces(self, traces: Sequence[OutgoingTrace]) -> dict[str, str]:
        self._post([trace_span(out.trace, out.texts) for out in traces])
        return {out.trace.trace_id: otel_trace_id(out.trace.trace_id) for out in traces}

    def send_feedback(self, feedback: Sequence[OutgoingFeedback]) -> dict[str, str]:
        self._post([feedback_span(out.feedback, out.trace_id, out.comment) for out in feedback])
        return {out.feedback.feedback_id: out.feedback.feedback_id for out in feedback}

    def delete_traces(self, remote_ids: Sequence[str]) -> bool:
        return False

    def delete_feedback(self, remote_ids: Sequence[str]) -> bool:
        return False

    def _post(self, spans: Sequence[Json]) -> None:
        body = json.dumps(export_request(spans), ensure_ascii=False).encode()
        self.service.post(self.path, body, {"content-type": "application/json"})


@contextmanager
def open_langfuse_destination(settings: LangfuseSettings, *, backoff_s: float = 0.5) -> Iterator[Destination]:
    with open_langfuse(settings, backoff_s=backoff_s) as api:
        yield LangfuseDestination(api, settings.send_text, settings.environment)


@contextmanager
def open_otlp_destination(settings: TelemetrySettings, *, backoff_s: float = 0.5) -> Iterator[Destination]:
    """The collector of the setting `telemetry.otlp_url`; its path is /v1/traces unless the address has one."""
    url = check_address("The collector", settings.otlp_url, "telemetry.otlp_url")
    base, _, path = url.partition("://")[2].partition("/")
    address = f"{url.partition('://')[0]}://{base}"
    with Service("The collector", address, headers=_headers(settings), backoff_s=backoff_s) as service:
        yield OtlpDestination(service, f"/{path}" if path else "/v1/traces", settings.send_text)


def _headers(settings: TelemetrySettings) -> dict[str, str]:
    """`name=value, name=value`, as OTEL_EXPORTER_OTLP_HEADERS has them."""
    given = settings.otlp_headers.get_secret_value()
    pairs = [pair.partition("=") for pair in given.split(",") if pair.strip()]
    if any(not sign or not name.strip() or not value.strip().isprintable() for name, sign, value in pairs):
        raise ConfigError("telemetry.otlp_headers cannot be read", "Write it as NAME=VALUE, NAME=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _langfuse(out: OutgoingTrace) -> dict[str, str | None]:
    """How Langfuse calls what the span has: without these it would show neither input nor the kind of the observation."""
    texts = out.texts
    messages = None if texts is None else [{"role": role, "content": text} for role, text in texts.messages]
    return {
        "langfuse.observation.type": "generation", "langfuse.trace.name": out.trace.agent_name,
        "session.id": out.trace.session_id, "langfuse.observation.model.name": out.trace.model_version,
        "langfuse.trace.metadata.medloop_trace_id": out.trace.trace_id,
        "langfuse.trace.metadata.snapshot": out.trace.snapshot,
        "langfuse.observation.input": None if messages is None else json.dumps(messages, ensure_ascii=False),
        "langfuse.observation.output": None if texts is None else texts.answer,
    }  # fmt: skip
