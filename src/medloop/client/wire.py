"""What both clients share: the form of a call, what a response means, and when to try again."""

import random
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Required, TypedDict

import httpx

from medloop.errors import ConfigError, InputError, MedloopError

RETRY_CODES = frozenset({408, 429, 502, 503, 504})  # nothing was stored, or unknown: the idempotency key makes a repeat safe
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
MAX_RETRY_AFTER_S = 60.0
VISIBLE_ASCII = re.compile(r"[\x21-\x7e]+")
CALLS = {
    "trace": ("/api/v1/traces", "trace_id"),
    "feedback": ("/api/v1/rlhf/feedback", "feedback_id"),
    "preference": ("/api/v1/rlhf/preference", "preference_id"),
    "correction": ("/api/v1/rlhf/correction", "correction_id"),
}

Thumb = Literal["up", "down"]
Side = Literal["a", "b"]
ChoiceOutcome = Literal["a", "b", "tie", "both_bad"]
Purpose = Literal["training", "evaluation", "teacher", "publication"]
Message = Mapping[str, str]  # {"role": "user", "content": "…"}


class TraceFields(TypedDict, total=False):
    """None is the same as leaving a field out. The server's bodies (feedback/submit/bodies.py) say what each field means."""

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
    clinician_id: str | int | None
    timestamp: str | None
    consent: Sequence[Purpose] | None
    subject: str | None
    supersedes: str | None
    idempotency_key: str | None


class FeedbackFields(_Shared, total=False):
    feedback_id: str | None
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
    preference_id: str | None
    prompt: Required[str]
    response_a: Required[str]
    response_b: Required[str]
    preferred: Required[ChoiceOutcome]
    critical: Sequence[Side] | None
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
    """The server refuses this call, however often it is sent; `status` is the HTTP status."""

    def __init__(self, status: int, what: str, to_do: str = "") -> None:
        self.status = status
        super().__init__(what, to_do)


class UnsentError(MedloopError):
    """The deadline has passed without a confirmation. `key` is the idempotency key that repeats the same call safely."""

    def __init__(self, key: str, seconds: float, last: str) -> None:
        self.key = key
        super().__init__(f"Not stored after {seconds:.0f} s ({last})", "Call again with idempotency_key=error.key")


@dataclass(frozen=True)
class Receipt:
    """What was stored. `repeated`: it had been stored before. `note`: why it will not be trained on, and what to do."""

    id: str
    timestamp: str
    quarantined: bool
    correction_id: str | None = None
    incident_id: str | None = None
    repeated: bool = False
    note: str | None = None


@dataclass(frozen=True)
class Call:
    """One request, with the same bytes and the same key at every attempt."""

    path: str
    body: dict[str, Any]
    id_name: str
    key: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def headers(self) -> dict[str, str]:
        return {"Idempotency-Key": self.key}


def build_call(kind: str, fields: Mapping[str, Any]) -> Call:
    """The request for these fields; those that are None are left out."""
    path, id_name = CALLS[kind]
    body = {name: value for name, value in fields.items() if value is not None and name != "idempotency_key"}
    key = fields.get("idempotency_key")
    if key is None:
        return Call(path, body, id_name)
    if not VISIBLE_ASCII.fullmatch(key) or len(key) > 200:  # it is sent in a header
        raise InputError("Invalid idempotency_key", "Use 1 to 200 visible ASCII characters, no spaces")
    return Call(path, body, id_name, key)


def http_options(url: str, key: str) -> dict[str, Any]:
    """What both clients open with. Mistakes are raised here; otherwise they would look like an unreachable server."""
    if not re.match(r"https?://[^/\s]", url):
        raise ConfigError(f"Not a server address: '{url}'", "Example: http://127.0.0.1:8000")
    if not VISIBLE_ASCII.fullmatch(key := key.strip()):  # read from a file, it ends with a line break
        raise ConfigError("Not a valid API key", "Create one: medloop api keys new NAME --scope feedback:write")
    return {"base_url": url, "headers": {"Authorization": f"Bearer {key}"}, "trust_env": False}


@dataclass
class Retries:
    """The attempts of one call: what to send, what a response means, how long to pause, and when to give up."""

    call: Call
    deadline_s: float
    timeout_s: float

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._pause_s, self._retry_after_s, self._was_last, self._problem = FIRST_PAUSE_S, 0.0, False, ""

    @property
    def _left_s(self) -> float:
        return self._began + self.deadline_s - time.monotonic()

    def request(self) -> dict[str, Any]:
        """The next attempt. It may take no longer than what is left, but the first one always has a moment."""
        timeout = max(0.1, min(self.timeout_s, self._left_s))
        return {"url": self.call.path, "json": self.call.body, "headers": self.call.headers, "timeout": timeout}

    def received(self, response: httpx.Response) -> Receipt | None:
        """The receipt; None if it should be tried again. RefusedError if that would not help."""
        if response.status_code in RETRY_CODES:
            seconds = response.headers.get("Retry-After", "")
            self._retry_after_s = min(float(seconds), MAX_RETRY_AFTER_S) if seconds.isdigit() else 0.0
            self._problem = f"the server answered {response.status_code}"
            return None
        body = _json(response)
        if response.status_code not in (200, 201) or not {self.call.id_name, "timestamp", "quarantined"} <= body.keys():
            message = body.get("error", f"The server answered {response.status_code}")
            raise RefusedError(response.status_code, str(message), str(body.get("hint", "")))
        return Receipt(
            id=body[self.call.id_name], timestamp=body["timestamp"], quarantined=body["quarantined"],
            correction_id=body.get("correction_id"), incident_id=body.get("incident_id"), repeated=response.status_code == 200,
            note=body.get("note"),
        )  # fmt: skip

    def failed(self, error: httpx.RequestError) -> None:
        self._problem, self._retry_after_s = type(error).__name__, 0.0

    def pause(self) -> float:
        """Seconds until the next attempt, longer each time, or what the server asked for; UnsentError when that is too late.

        The jitter keeps many clients from coming back together.
        """
        pause = self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        left = self._left_s
        if left <= self._retry_after_s or self._was_last:
            raise UnsentError(self.call.key, time.monotonic() - self._began, self._problem)
        self._was_last = pause >= left
        return max(self._retry_after_s, min(pause, 0.9 * left))  # the last pause leaves time for one more attempt


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
