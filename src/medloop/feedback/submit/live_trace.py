"""Traces of answers that this server gave itself: scanned and stored like those that somebody logs, many in one request."""

from collections.abc import Sequence

from medloop.contracts import AuditEvent, Trace, utc_now
from medloop.feedback.submit.phi_scan import PhiScan
from medloop.store.records import crud
from medloop.store.records.write_request import LookupResults, NewRows, WriteRequest
from medloop.store.tables import quarantine

ACTOR = "gateway"


def prepare_traces(traces: Sequence[Trace]) -> WriteRequest:
    """The rows of these traces, all or none; one that may name somebody waits in quarantine."""
    texts = [_texts(trace) for trace in traces]
    scan = PhiScan(ACTOR, texts)

    def build(_: LookupResults) -> NewRows:
        rows, events = [], []
        for trace, doubt in zip(traces, scan.doubts(texts), strict=True):
            if doubt is None:
                continue
            kind = crud.TABLES[Trace].name
            row = {"record_id": trace.trace_id, "kind": kind, "doubt": doubt.value, "reasons": list(doubt.reasons)}
            rows.append((quarantine, row | {"state": "waiting", "timestamp": utc_now()}))
            events.append(AuditEvent(actor=ACTOR, action="quarantine.hold", subject=trace.trace_id, detail={"kind": kind}))
        return NewRows({"traces": len(traces), "quarantined": len(rows)}, tuple(traces), tuple(rows), tuple(events))

    return WriteRequest(ACTOR, build, prepare=scan.prepare, begin=scan.begin)


def _texts(trace: Trace) -> tuple[str, ...]:
    return (*(message.content for message in trace.conversation.messages), *trace.contexts)
