"""Send traces and feedback to Langfuse or an OpenTelemetry collector, from where they lie in the store.

    send_pending(settings, store, on_rows=...)             # {"langfuse": SentCounts(traces=12, feedback=3, ...)}

A process of its own does this, beside the API: no answer waits for it. It begins with what is stored after sending was switched
on. A text leaves only where the setting `send_text` allows it, without identifiers, and never that of a person who has withdrawn
a consent; a comment needs the consent for evaluation, too. What quarantine holds is not sent. What was erased is deleted at
Langfuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from medloop.contracts import Feedback, Trace
from medloop.errors import ConfigError
from medloop.privacy.consent import Register
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import imported, outbox
from medloop.telemetry.destinations import (
    Destination,
    OutgoingFeedback,
    OutgoingTrace,
    open_langfuse_destination,
    open_otlp_destination,
)
from medloop.telemetry.genai_spans import ExchangeTexts

BATCH = 100
KINDS: dict[str, type[Trace] | type[Feedback]] = {"traces": Trace, "feedback": Feedback}


@dataclass(frozen=True)
class SentCounts:
    """`without_text`: traces whose text could not be freed of identifiers, or whose person has withdrawn a consent."""

    traces: int = 0
    feedback: int = 0
    without_text: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class DestinationStatus:
    name: str
    address: str
    sends_text: bool
    waiting: int
    sent: dict[str, int]
    to_delete: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def destinations(settings: Settings) -> tuple[str, ...]:
    """The names of those that are switched on."""
    is_on = {"langfuse": settings.langfuse.send, "otlp": bool(settings.telemetry.otlp_url)}
    return tuple(name for name, on in is_on.items() if on)


def send_pending(
    settings: Settings, store: Store, *, backoff_s: float = 0.5, on_rows: Callable[[int], object] = lambda count: None
) -> dict[str, SentCounts]:  # fmt: skip
    """Send what waits, to every destination that is switched on."""
    names = destinations(settings)
    if not names:
        raise ConfigError("Nothing is to be sent anywhere", "Set langfuse.send to true, or telemetry.otlp_url")
    sent = {}
    with ExitStack() as stack:
        opened = [stack.enter_context(_open(name, settings, backoff_s)) for name in names]
        for destination in opened:
            sent[destination.name] = _Sender(store, destination, Register.of(store), on_rows).send()
    return sent


def is_due(settings: Settings, store: Store) -> bool:
    """Whether something waits for a destination; cheap, and reads no text."""
    return any(status.waiting or status.to_delete for status in statuses(settings, store))


def statuses(settings: Settings, store: Store) -> list[DestinationStatus]:
    found = []
    for name in destinations(settings):
        after = _position(store, name)
        waiting = sum(outbox.count_pending(store, kind, name, after=after[key]) for key, kind in KINDS.items())
        to_delete = sum(len(outbox.erased(store, name, kind=kind)) for kind in KINDS) if name == "langfuse" else 0
        address = settings.langfuse.url if name == "langfuse" else settings.telemetry.otlp_url
        text = settings.langfuse.send_text if name == "langfuse" else settings.telemetry.send_text
        found.append(DestinationStatus(name, address, text, waiting, outbox.count_sent(store, name), to_delete))
    return found


@contextmanager
def _open(name: str, settings: Settings, backoff_s: float) -> Iterator[Destination]:
    if name == "langfuse":
        with open_langfuse_destination(settings.langfuse, backoff_s=backoff_s) as destination:
            yield destination
    else:
        with open_otlp_destination(settings.telemetry, backoff_s=backoff_s) as destination:
            yield destination


def _position(store: Store, destination: str) -> dict[str, int]:
    """Up to which row everything is done, by kind; at the first time, everything that is stored already."""
    name = f"send/{destination}"
    saved = imported.read_position(store, name)
    if saved is None:
        saved = {key: outbox.last_row(store, kind) for key, kind in KINDS.items()}
        imported.save_position(store, name, saved)
    return saved


@dataclass
class _Sender:
    store: Store
    destination: Destination
    register: Register
    on_rows: Callable[[int], object]

    def send(self) -> SentCounts:
        counts = replace(self.send_traces(), deleted=self.delete_erased())
        return replace(counts, feedback=self.send_feedback())

    def send_traces(self) -> SentCounts:
        counts = SentCounts()
        while page := self._page(Trace, "traces"):
            own = [trace for trace in page.records if trace.meta.get("source") != self.destination.name]
            outgoing = [OutgoingTrace(trace, self.texts(trace)) for trace in own]
            remote = self.destination.send_traces(outgoing) if outgoing else {}
            skipped = {trace.trace_id: outbox.NOT_FOR_IT for trace in page.records if trace.trace_id not in remote}
            self._done("traces", {**skipped, **remote}, page.done)
            bare = sum(out.texts is None for out in outgoing) if self.destination.sends_text else 0
            counts = replace(counts, traces=counts.traces + len(remote), without_text=counts.without_text + bare)
        return counts

    def send_feedback(self) -> int:
        count = 0
        while page := self._page(Feedback, "feedback"):
            known = outbox.sent_to(self.store, self.destination.name, [f.trace_id for f in page.records if f.trace_id])
            own = [f for f in page.records if f.trace_id in known and f.recorded_by != f"import:{self.destination.name}"]
            outgoing = [OutgoingFeedback(f, f.trace_id or "", self.comment(f)) for f in own]
            remote = self.destination.send_feedback(outgoing) if outgoing else {}
            skipped = {f.feedback_id: outbox.NOT_FOR_IT for f in page.records if f.feedback_id not in remote}
            self._done("feedback", {**skipped, **remote}, page.done)
            count += len(remote)
        return count

    def delete_erased(self) -> int:
        count = 0
        for kind, delete in (("traces", self.destination.delete_traces), ("feedback", self.destination.delete_feedback)):
            gone = outbox.erased(self.store, self.destination.name, kind=kind)
            if gone and delete(sorted(gone.values())):
                outbox.forget_sent(self.store, self.destination.name, gone)
                count += len(gone)
        return count

    def texts(self, trace: Trace) -> ExchangeTexts | None:
        """The exchange without identifiers; None where it may not leave."""
        words = self.register.words.get(trace.user_hash or "", {})
        if not self.destination.sends_text or trace.conversation.answer is None or not all(words.values()):
            return None
        scrubber = Scrubber()
        try:
            messages = tuple((m.role, scrubber.release(m.content)) for m in trace.conversation.prompt)
            return ExchangeTexts(messages, scrubber.release(trace.conversation.answer))
        except Unscrubbable:
            return None

    def comment(self, feedback: Feedback) -> str | None:
        if not self.destination.sends_text or not feedback.comments or not self.register.covers(feedback, "evaluation"):
            return None
        try:
            return Scrubber().release(feedback.comments)
        except Unscrubbable:
            return None

    def _page(self, kind: Any, key: str) -> Any:
        after = _position(self.store, self.destination.name)[key]
        page = outbox.pending(self.store, kind, self.destination.name, after=after, limit=BATCH)
        return page if page.records else None

    def _done(self, key: str, remote_ids: dict[str, str], row: int) -> None:
        """Marked after the destination has accepted them: a crash in between sends them again, under the same ids."""
        outbox.mark_sent(self.store, self.destination.name, remote_ids, kind=key)
        position = _position(self.store, self.destination.name)
        imported.save_position(self.store, f"send/{self.destination.name}", {**position, key: max(row, position[key])})
        self.on_rows(len(remote_ids))
