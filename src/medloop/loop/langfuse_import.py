"""Import from Langfuse: root observations become traces, scores become feedback; what people disliked goes to the review queue.

    import_langfuse(settings, store, ImportWish(consent=("training",)), actor="user:li")

Every text is scrubbed on the way in, and one that may still name a person waits in quarantine with its own words. A trace is
stored once, as it was when it was finished. A score that changed at Langfuse becomes a record that supersedes the one before.
What was erased here does not come back, and what medloop itself sent to Langfuse is not imported as somebody else's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from medloop.contracts import Contract, Conversation, Correction, Feedback, Message, Trace, utc_now
from medloop.contracts.feedback import Purpose
from medloop.contracts.polarity import polarity, stored_type
from medloop.errors import ConfigError, InputError
from medloop.loop.feedback import queue_new_complaints
from medloop.privacy.consent import subject_of
from medloop.privacy.phi.scrub import Scrubber
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import crud, imported, users
from medloop.store.records.imported import HeldTrace, NewRecord
from medloop.telemetry import langfuse_read
from medloop.telemetry.langfuse_api import LangfuseApi, open_langfuse
from medloop.telemetry.langfuse_read import ScoreSignal, clear_name, signal_of, time_of, traced_id
from medloop.telemetry.windows import StreamPosition, read_stream

FIRST_DAYS = 30
SOURCE = "langfuse"
RECORDED_BY = "import:langfuse"

Json = dict[str, Any]


@dataclass(frozen=True)
class ImportWish:
    """What an import is told: from when, who gave the scores, what they may be used for."""

    since: datetime | None = None
    consent: tuple[Purpose, ...] = ()
    rater: str = ""
    backoff_s: float = 0.5


@dataclass
class ImportCounts:
    """What an import found; `unreadable` and `unknown_scores` say that nothing was guessed."""

    traces_new: int = 0
    traces_known: int = 0
    unfinished: int = 0
    unreadable: int = 0
    up: int = 0
    down: int = 0
    stars: int = 0
    comments: int = 0
    corrections: int = 0
    scores_known: int = 0
    scores_changed: int = 0
    unknown_scores: int = 0
    without_trace: int = 0
    held: int = 0
    queued: int = 0
    retries: int = 0

    @property
    def scores_new(self) -> int:
        return self.up + self.down + self.stars + self.comments + self.corrections

    def as_json(self) -> Json:
        return {**asdict(self), "scores_new": self.scores_new}


def import_langfuse(
    settings: Settings, store: Store, wish: ImportWish, *, actor: str, on_rows: Callable[[int], object] = lambda count: None
) -> ImportCounts:  # fmt: skip
    """Read what is new since the last import, or since `wish.since`; safe to stop and to repeat at any time."""
    now, overlap = utc_now(), timedelta(minutes=settings.langfuse.overlap_minutes)
    rater = _rater(store, wish.rater)
    with open_langfuse(settings.langfuse, backoff_s=wish.backoff_s) as api:
        project = api.project()
        names = frozenset(settings.langfuse.score_names.replace(",", " ").split())
        importer = _Importer(store, api, project, names, wish.consent, rater, actor, on_rows)
        for stream, fetch, handle in (
            ("observations", api.observations, importer.store_traces),
            ("scores", api.scores, importer.store_scores),
        ):
            name = f"langfuse/{_digest(project, settings.langfuse.environment)}/{stream}"
            begin = _begin(store, name, wish.since, now, overlap)
            read_stream(fetch, handle, begin=begin, save=_saver(store, name), now=now)
        importer.counts.retries = api.service.retries
    importer.counts.queued = len(queue_new_complaints(store))
    return importer.counts


def _rater(store: Store, name: str) -> str | None:
    if not name:
        return None
    user_id = users.find_user_id(store, name)
    if user_id is None:
        raise ConfigError(f"--rater: there is no user '{name}'", "See them with: medloop users list")
    return user_id


def _begin(store: Store, name: str, since: datetime | None, now: datetime, overlap: timedelta) -> StreamPosition:
    """Where to read on: inside a window that was interrupted, else the overlap before the last end, else where asked."""
    saved = imported.read_position(store, name)
    if since is not None or saved is None:
        return StreamPosition(since or now - timedelta(days=FIRST_DAYS))
    position = StreamPosition.of(saved)
    return position if position.end is not None else StreamPosition(position.start - overlap)


def _saver(store: Store, name: str) -> Callable[[StreamPosition], None]:
    return lambda position: imported.save_position(store, name, position.as_json())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:24]


@dataclass
class _Importer:
    store: Store
    api: LangfuseApi
    project: str
    names: frozenset[str]
    consent: tuple[Purpose, ...]
    rater: str | None
    actor: str
    on_rows: Callable[[int], object]
    counts: ImportCounts = field(default_factory=ImportCounts)

    def trace_id(self, remote: str) -> str:
        """Our id of a trace of Langfuse: the same at every import, and it says nothing about anybody."""
        return f"lf_{_digest(self.project, 'trace', remote)}"

    def store_traces(self, rows: Sequence[Json]) -> datetime | None:
        """Store the root observations that are new; the time of the oldest one that is still running."""
        remote_ids = [str(row.get("traceId") or "") for row in rows]
        own = imported.own_records(self.store, remote_ids)
        known = imported.stored_ids(self.store, Trace, map(self.trace_id, remote_ids))
        new, waiting = list[NewRecord](), list[datetime]()
        for remote, row in zip(remote_ids, rows, strict=True):
            if remote in own or self.trace_id(remote) in known:
                self.counts.traces_known += 1
            elif not remote or (started := time_of(row.get("startTime"))) is None:
                self.counts.unreadable += 1
            elif not langfuse_read.is_finished(row):
                self.counts.unfinished += 1
                waiting.append(started)
            elif (record := self.read_trace(remote, row, started)) is None:
                self.counts.unreadable += 1
            else:
                new.append(record)
        added = imported.add_new(self.store, new, actor=self.actor)
        self.counts.traces_new += len(added)
        self.counts.traces_known += len(new) - len(added)  # a page may hold a trace twice
        self.counts.held += sum(record.doubt is not None for record in new)
        self.on_rows(len(rows))
        return min(waiting, default=None)

    def read_trace(self, remote: str, row: Json, started: datetime) -> NewRecord | None:
        conversation = langfuse_read.conversation_of(row)
        if conversation is None:
            return None
        texts = _Scrubbed()
        messages = tuple(Message(role=m.role, content=texts.add(m.content)) for m in conversation.messages)
        contexts = tuple(texts.add(text) for text in langfuse_read.contexts_of(row))
        user, session = row.get("userId"), row.get("sessionId")
        model = clear_name(row.get("model"), row.get("version"), row.get("release"), otherwise="unknown")
        trace = Trace(
            trace_id=self.trace_id(remote),
            session_id=clear_name(session, otherwise=f"lf_{_digest(self.project, 'session', str(session or remote))}"),
            agent_name=clear_name(row.get("traceName"), row.get("name"), otherwise=SOURCE),
            conversation=Conversation(messages=messages), contexts=contexts, model_version=model,
            user_hash=self.subject(user), timestamp=started,
            meta={"source": SOURCE, "langfuse_trace_id": clear_name(remote, otherwise=""), **_usage(row)},
        )  # fmt: skip
        return texts.record(trace)

    def subject(self, user: object) -> str | None:
        try:
            return subject_of(self.store, user) if isinstance(user, str) and user.strip() else None
        except InputError:
            return None

    def store_scores(self, rows: Sequence[Json]) -> datetime | None:
        """Store the scores that are new or changed; the time of the oldest one whose trace Langfuse does not show yet."""
        wanted: list[tuple[Json, str, ScoreSignal]] = []
        for row in rows:
            remote, signal = traced_id(row), signal_of(row)
            if row.get("name") not in self.names and row.get("dataType") != "CORRECTION":
                continue
            if signal is None or not isinstance(row.get("id"), str) or time_of(row.get("timestamp")) is None:
                self.counts.unknown_scores += 1
            elif remote is None:
                self.counts.without_trace += 1
            else:
                wanted.append((row, remote, signal))
        sent = imported.own_records(self.store, [row["id"] for row, _, _ in wanted])
        wanted = [entry for entry in wanted if entry[0]["id"] not in sent]
        traces = self.traces_of([remote for _, remote, _ in wanted])
        waiting = [time_of(row["timestamp"]) for row, remote, _ in wanted if remote not in traces]
        self.counts.without_trace += len(waiting)
        self.store_signals([(row, signal, traces[remote]) for row, remote, signal in wanted if remote in traces])
        self.on_rows(len(rows))
        return min(filter(None, waiting), default=None)

    def traces_of(self, remote_ids: Sequence[str]) -> dict[str, HeldTrace]:
        """Traces by Langfuse's id: our own that were sent there, imported ones, else read from Langfuse one by one."""
        own = imported.own_records(self.store, remote_ids)
        ours = {remote: own.get(remote, self.trace_id(remote)) for remote in remote_ids}
        stored = imported.traces_with_doubts(self.store, ours.values())
        gone = imported.stored_ids(self.store, Trace, ours.values()) - stored.keys()  # erased
        for remote in sorted(remote for remote, record_id in ours.items() if record_id not in stored and record_id not in gone):
            self.store_traces(self.api.root_of(remote))
        stored |= imported.traces_with_doubts(self.store, ours.values() - stored.keys())
        return {remote: stored[record_id] for remote, record_id in ours.items() if record_id in stored}

    def store_signals(self, scores: Sequence[tuple[Json, ScoreSignal, HeldTrace]]) -> None:
        """Each score as one record; where Langfuse changed it, a record that supersedes the newest one."""
        bases = {row["id"]: f"lf_{_digest(self.project, 'score', row['id'])}" for row, _, _ in scores}
        versions: dict[str, list[Any]] = {}
        erased: set[str] = set()
        for kind in (Feedback, Correction):
            versions |= imported.versions_of(self.store, kind, bases.values())
            erased |= imported.stored_ids(self.store, kind, bases.values())
        erased -= versions.keys()
        new = []
        for row, signal, about in scores:
            base, texts = bases[row["id"]], _Scrubbed(about)
            said = {"comments": texts.add(signal.comment), "golden": texts.add(signal.correction)}
            before = versions.setdefault(base, [])
            if base in erased or (
                before and _says(before[-1]) == (signal.thumb, signal.rating, said["comments"], said["golden"])
            ):
                self.counts.scores_known += 1
                continue
            record_id, supersedes = (f"{base}.{len(before) + 1}", crud.id_of(before[-1])) if before else (base, None)
            record = self.score_record(record_id, supersedes, row, signal, said, about.trace)
            self.count(signal, changed=bool(before), held=texts.doubt is not None)
            before.append(record)
            new.append(texts.record(record))
        imported.add_new(self.store, new, actor=self.actor)

    def score_record(
        self, record_id: str, supersedes: str | None, row: Json, signal: ScoreSignal, said: dict[str, str], trace: Trace
    ) -> Feedback | Correction:  # fmt: skip
        shared: Json = {
            "clinician_id": self.rater, "consent": self.consent, "trace_id": trace.trace_id, "supersedes": supersedes,
            "subject": trace.user_hash, "recorded_by": RECORDED_BY, "timestamp": time_of(row["timestamp"]), "received": utc_now(),
        }  # fmt: skip
        question, answer = trace.conversation.question, trace.conversation.answer or ""
        if signal.correction:
            texts = {"prompt": question, "original": answer, "golden": said["golden"], "reason": said["comments"] or None}
            return Correction(correction_id=record_id, **texts, **shared)
        kind = stored_type(polarity(thumb=signal.thumb, stars=signal.rating, critical=False))
        return Feedback(
            feedback_id=record_id, session_id=trace.session_id, agent_name=trace.agent_name, user_query=question,
            agent_response=answer, thumb=signal.thumb, rating=signal.rating, feedback_type=kind,
            comments=said["comments"] or None, model_version=trace.model_version, **shared,
        )  # fmt: skip

    def count(self, signal: ScoreSignal, *, changed: bool, held: bool) -> None:
        self.counts.scores_changed += changed
        self.counts.held += held
        kinds = {"corrections": signal.correction, "up": signal.thumb == "up", "down": signal.thumb == "down"}
        name = next((name for name, value in kinds.items() if value), "stars" if signal.rating else "comments")
        setattr(self.counts, name, getattr(self.counts, name) + 1)


class _Scrubbed:
    """The texts of one record without identifiers; a record with a doubtful text keeps its own words, for the reviewer."""

    def __init__(self, about: HeldTrace | None = None) -> None:
        self._scrubber = Scrubber()
        self.doubt = about.doubt if about else None  # feedback about an exchange in quarantine waits with it
        self.reasons = about.reasons if about else ()

    def add(self, text: str | None) -> str:
        if not text:
            return ""
        result = self._scrubber.assess(text)
        if not result.quarantined:
            return result.cleaned
        self.doubt = max(self.doubt or 0.0, result.doubt)
        self.reasons = tuple(dict.fromkeys((*self.reasons, *result.reasons)))
        return text

    def record(self, record: Contract) -> NewRecord:
        return NewRecord(record, self.doubt, self.reasons)


def _says(record: Feedback | Correction) -> tuple[Any, ...]:
    if isinstance(record, Correction):
        return None, None, record.reason or "", record.golden
    return record.thumb, record.rating, record.comments or "", ""


def _usage(row: Json) -> Json:
    """Tokens as Langfuse counted them."""
    usage = row.get("usageDetails")
    numbers = {f"{name}_tokens": usage.get(name) for name in ("input", "output")} if isinstance(usage, dict) else {}
    return {name: value for name, value in numbers.items() if isinstance(value, int)}
