"""Traces and feedback as OpenTelemetry spans with the GenAI attributes, in OTLP's JSON form.

    export_request([trace_span(trace, texts=None)])            # an ExportTraceServiceRequest for POST /v1/traces

An exchange is a span `chat MODEL`; a rating is a span `gen_ai.evaluation` below it. Ids are derived from ours, so a span that is
sent twice is the same span. There is no word of the exchange in it unless `texts` brings the scrubbed ones.
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from medloop.contracts import Feedback, Trace

SYSTEM = "medloop"
CLIENT, INTERNAL = 3, 1  # kinds of spans
OK, FAILED = 1, 2  # codes of a status
EVALUATIONS = {"positive": 1.0, "neutral": 0.5, "negative": 0.0}

Json = dict[str, Any]
Value = str | int | float | bool | Sequence[str]


@dataclass(frozen=True)
class ExchangeTexts:
    """The messages before the answer as (role, text), and the answer, all without identifiers."""

    messages: tuple[tuple[str, str], ...]
    answer: str


def otel_trace_id(trace_id: str) -> str:
    """32 hexadecimal digits: those of a UUID, else of a hash."""
    try:
        return uuid.UUID(trace_id).hex
    except ValueError:
        return hashlib.sha256(f"trace {trace_id}".encode()).hexdigest()[:32]


def otel_span_id(record_id: str) -> str:
    return hashlib.sha256(f"span {record_id}".encode()).hexdigest()[:16]


def trace_span(trace: Trace, texts: ExchangeTexts | None, more: Mapping[str, Value | None] | None = None) -> Json:
    """The span of one exchange. `more` are attributes for one destination."""
    meta = trace.meta
    values: dict[str, Value | None] = {
        "gen_ai.operation.name": "chat", "gen_ai.system": SYSTEM, "gen_ai.provider.name": SYSTEM,
        "gen_ai.request.model": trace.model_version, "gen_ai.response.model": trace.model_version,
        "gen_ai.response.id": trace.trace_id, "gen_ai.conversation.id": trace.session_id, "gen_ai.agent.name": trace.agent_name,
        "gen_ai.usage.input_tokens": _number(meta, "input_tokens", "prompt_tokens"),
        "gen_ai.usage.output_tokens": _number(meta, "output_tokens", "completion_tokens"),
        "gen_ai.request.temperature": _number(meta, "temperature"), "gen_ai.request.max_tokens": _number(meta, "max_tokens"),
        "gen_ai.response.finish_reasons": [reason] if isinstance(reason := meta.get("finish_reason"), str) else None,
        "medloop.trace_id": trace.trace_id, "medloop.snapshot": trace.snapshot, "medloop.guards": _guards(meta),
        "medloop.messages": len(trace.conversation.messages), "medloop.contexts": len(trace.contexts),
        **_contents(texts), **(more or {}),
    }  # fmt: skip
    start = trace.timestamp - timedelta(seconds=float(_number(meta, "seconds") or 0))
    return {
        "traceId": otel_trace_id(trace.trace_id), "spanId": otel_span_id(trace.trace_id), "name": f"chat {trace.model_version}",
        "kind": CLIENT, "startTimeUnixNano": _nanoseconds(start), "endTimeUnixNano": _nanoseconds(trace.timestamp),
        "attributes": attributes(values), "status": {"code": FAILED if meta.get("error") else OK},
    }  # fmt: skip


def feedback_span(feedback: Feedback, trace_id: str, comment: str | None) -> Json:
    """The span of one rating, below the exchange that it is about."""
    kind = feedback.feedback_type
    values: dict[str, Value | None] = {
        "gen_ai.system": SYSTEM, "gen_ai.evaluation.name": "user-feedback",
        "gen_ai.evaluation.score.label": feedback.thumb or kind,
        "gen_ai.evaluation.score.value": EVALUATIONS.get(kind or ""), "gen_ai.evaluation.explanation": comment,
        "gen_ai.response.id": trace_id, "medloop.rating": feedback.rating, "medloop.critical": feedback.critical,
        "medloop.feedback_id": feedback.feedback_id,
    }  # fmt: skip
    time = _nanoseconds(feedback.timestamp)
    return {
        "traceId": otel_trace_id(trace_id), "spanId": otel_span_id(feedback.feedback_id), "parentSpanId": otel_span_id(trace_id),
        "name": "gen_ai.evaluation", "kind": INTERNAL, "startTimeUnixNano": time, "endTimeUnixNano": time,
        "attributes": attributes(values),
    }  # fmt: skip


def export_request(spans: Sequence[Json], resource: Mapping[str, Value | None] | None = None) -> Json:
    shared = attributes({"service.name": SYSTEM, **(resource or {})})
    scope = {"scope": {"name": "medloop.telemetry"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": {"attributes": shared}, "scopeSpans": [scope]}]}


def attributes(values: Mapping[str, Value | None]) -> list[Json]:
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value is not None]


def _value(value: Value) -> Json:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # 64 bits are a string in OTLP's JSON
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [{"stringValue": item} for item in value]}}


def _contents(texts: ExchangeTexts | None) -> dict[str, str]:
    """Messages in the form of the semantic conventions; none without permission."""
    if texts is None:
        return {}
    messages = [{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in texts.messages]
    answer = [{"role": "assistant", "parts": [{"type": "text", "content": texts.answer}], "finish_reason": "stop"}]
    return {
        "gen_ai.input.messages": json.dumps(messages, ensure_ascii=False),
        "gen_ai.output.messages": json.dumps(answer, ensure_ascii=False),
    }


def _guards(meta: Mapping[str, Any]) -> list[str] | None:
    """The guards that acted, by name; what they found may repeat a word of the question."""
    acts = meta.get("guards")
    return [str(act.get("guard")) for act in acts if isinstance(act, dict)] or None if isinstance(acts, list) else None


def _number(meta: Mapping[str, Any], *names: str) -> int | float | None:
    found = (meta.get(name) for name in names)
    return next((value for value in found if isinstance(value, int | float) and not isinstance(value, bool)), None)


def _nanoseconds(time: datetime) -> str:
    return str(int(time.timestamp() * 1e6) * 1000)
