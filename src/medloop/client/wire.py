"""What both clients share: the form of a call, what an answer means, and when to try again."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Required, TypedDict

import httpx

from medloop.errors import ConfigError, InputError, MedloopError

AGAIN = frozenset({408, 429, 502, 503, 504})  # nothing was stored, or a proxy could not say: the same key makes a repeat safe
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
PLAIN = re.compile(r"[\x21-\x7e]+")

Thumb = Literal["up", "down"]
Side = Literal["a", "b"]
Purpose = Literal["training", "evaluation", "teacher", "publication"]
Message = Mapping[str, str]  # {"role": "user", "content": "…"}


class TraceFields(TypedDict, total=False):
    """None says the same as leaving a field out; the server's bodies (feedback/submit/bodies.py) say what each one means."""

    session_id: Required[str]
    agent_name: Required[str]
    model_version: Required[str]
    messages: Required[Sequence[Message]]
    contexts: Sequence[str] | None
    subject: str | None
    sampling_share: float | None
    meta: Mapping[str, str | int | float | bool | None] | None
    idempotency_key: str | None


class _Shared(TypedDict, total=False):
    trace_id: str | None
    clinician_id: str | None
    consent: Sequence[Purpose] | None
    subject: str | None
    supersedes: str | None
    idempotency_key: str | None


class FeedbackFields(_Shared, total=False):
    rating: int | None
    thumb: Thumb | None
    feedback_type: Literal["positive", "negative", "neutral"] | None
    axes: Mapping[str, int] | None
    critical: bool | None
    comments: str | None
    golden: str | None
    session_id: str | None
    agent_name: str | None
    user_query: str | None
    agent_response: str | None
    model_version: str | None


class PreferenceFields(_Shared, total=False):
    prompt: Required[str]
    response_a: Required[str]
    response_b: Required[str]
    preferred: Required[Side]
    shown_first: Side | None
    comments: str | None
    axes: Mapping[str, Literal["a", "b", "tie"]] | None
    session_id: str | None
    model_a: str | None
    model_b: str | None


class CorrectionFields(_Shared, total=False):
    golden: Required[str]
    prompt: str | None
    original: str | None
    reason: str | None
    feedback_id: str | None


class RefusedError(MedloopError):
    """The server will not take this, however often it is sent; `status` is its code."""

    def __init__(self, status: int, what: str, to_do: str = "") -> None:
        self.status = status
        super().__init__(what, to_do)


class UnsentError(MedloopError):
    """The deadline is over and the server has not said that it is stored. `key` repeats the same call safely."""

    def __init__(self, key: str, seconds: float, last: str) -> None:
        self.key = key
        super().__init__(f"Not stored after {seconds:.0f} s ({last})", "Call again with idempotency_key=error.key")


@dataclass(frozen=True)
class Receipt:
    """What was stored. `repeated`: an earlier try had gone through already."""

    id: str
    timestamp: str
    quarantined: bool
    correction_id: str | None = None
    incident_id: str | None = None
    repeated: bool = False


@dataclass(frozen=True)
class Call:
    """One request, the same bytes and the same key at every try."""

    path: str
    body: dict[str, Any]
    id_name: str
    key: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def headers(self) -> dict[str, str]:
        return {"Idempotency-Key": self.key}


def trace(said: TraceFields) -> Call:
    return _call("/api/v1/traces", "trace_id", said)


def feedback(said: FeedbackFields) -> Call:
    return _call("/api/v1/rlhf/feedback", "feedback_id", said)


def preference(said: PreferenceFields) -> Call:
    return _call("/api/v1/rlhf/preference", "preference_id", said)


def correction(said: CorrectionFields) -> Call:
    return _call("/api/v1/rlhf/correction", "correction_id", said)


def _call(path: str, id_name: str, said: Mapping[str, Any]) -> Call:
    """None means "not said" and is left out."""
    body = {name: value for name, value in said.items() if value is not None and name != "idempotency_key"}
    key = said.get("idempotency_key")
    if key is None:
        return Call(path, body, id_name)
    if not PLAIN.fullmatch(key) or len(key) > 200:  # it travels in a header
        raise InputError("This idempotency_key cannot be sent", "Use up to 200 letters, digits and signs, no spaces")
    return Call(path, body, id_name, key)


def door(url: str, key: str) -> dict[str, Any]:
    """What both clients open with. A mistake here would else look like a server that is away, for as long as the deadline."""
    if not re.match(r"https?://[^/\s]", url):
        raise ConfigError(f"'{url}' is no address of a server", "Example: http://127.0.0.1:8000")
    if not PLAIN.fullmatch(key := key.strip()):  # read from a file, it ends with a line break
        raise ConfigError("This is no key", "Make one with: medloop api keys new NAME --scope feedback:write")
    return {"base_url": url, "headers": {"Authorization": f"Bearer {key}"}, "trust_env": False}


@dataclass
class Tries:
    """The time of one call: how long a try may take, how long to wait for the next, and that it is over."""

    deadline_s: float
    timeout_s: float
    last: str = "no try"

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self._pause, self._was_last = FIRST_PAUSE_S, False

    @property
    def left_s(self) -> float:
        return self.began + self.deadline_s - time.monotonic()

    def timeout(self) -> float:
        """A server that says nothing is given no more than what is left; the first try has a moment in any case."""
        return max(0.1, min(self.timeout_s, self.left_s))

    def pause(self, call: Call, asked_s: float) -> float:
        """Seconds until the next try, longer each time or as long as the server asks; UnsentError when that is too late.

        The jitter keeps many clients from coming back together.
        """
        own = self._pause * random.uniform(0.5, 1.0)
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)
        left = self.left_s
        if left <= asked_s or self._was_last:
            raise UnsentError(call.key, time.monotonic() - self.began, self.last)
        self._was_last = own >= left
        return max(asked_s, min(own, 0.9 * left))  # the last pause leaves time for one more try


def receipt(response: httpx.Response, asked: Call) -> Receipt | float:
    """The receipt, or how many seconds the server asks to wait (0: it does not say); RefusedError when there is no use."""
    if response.status_code in AGAIN:
        return _seconds(response.headers.get("Retry-After", ""))
    said = _json(response)
    if response.status_code not in (200, 201) or not {asked.id_name, "timestamp", "quarantined"} <= said.keys():
        raise RefusedError(
            response.status_code, str(said.get("error", f"The server answered {response.status_code}")), str(said.get("hint", ""))
        )
    return Receipt(
        id=said[asked.id_name], timestamp=said["timestamp"], quarantined=said["quarantined"],
        correction_id=said.get("correction_id"), incident_id=said.get("incident_id"), repeated=response.status_code == 200,
    )  # fmt: skip


def _seconds(text: str) -> float:
    return min(float(text), 60.0) if text.isdigit() else 0.0


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        said = response.json()
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
