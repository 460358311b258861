"""The trace of an answer that this server gave itself: scanned and stored like one that somebody logs."""

from medloop.contracts import AuditEvent, Trace, utc_now
from medloop.feedback.submit.phi_scan import PhiScan
from medloop.store.records import crud
from medloop.store.records.write_request import Json, LookupResults, NewRows, WriteRequest
from medloop.store.tables import quarantine

ACTOR = "gateway"


def prepare_trace(trace: Trace) -> WriteRequest:
    """The rows of one trace; one that may name somebody waits in quarantine."""
    texts = (*(message.content for message in trace.conversation.messages), *trace.contexts)
    scan = PhiScan(ACTOR, [texts])

    def build(_: LookupResults) -> NewRows:
        (doubt,) = scan.doubts([texts])
        answer: Json = {"trace_id": trace.trace_id, "quarantined": doubt is not None}
        if doubt is None:
            return NewRows(answer, (trace,))
        kind = crud.TABLES[Trace].name
        row = {"record_id": trace.trace_id, "kind": kind, "doubt": doubt.value, "reasons": list(doubt.reasons)}
        row |= {"state": "waiting", "timestamp": utc_now()}
        event = AuditEvent(actor=ACTOR, action="quarantine.hold", subject=trace.trace_id, detail={"kind": kind})
        return NewRows(answer, (trace,), ((quarantine, row),), (event,))

    return WriteRequest(ACTOR, build, prepare=scan.prepare, begin=scan.begin)
