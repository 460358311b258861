"""Traces: the answers that users got, as a list, and one with what it was made of and what came of it.

Clinicians read the conversation, and each read is audited; the others see ids, versions and numbers. A clinician who has not
judged the answer yet sees no score of a machine.
"""

from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.api.routes.incidents import TEXT_READERS
from medloop.contracts import Trace
from medloop.store.db import Store
from medloop.store.records import crud, marks, trace_rows
from medloop.store.records.audited_read import get_audited
from medloop.store.records.scores import rewards_of
from medloop.store.records.trace_rows import Judged, TraceFilter
from medloop.web.lists import address, chosen, day_end, day_start
from medloop.web.people import People
from medloop.web.render import show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

TraceReader = Annotated[Caller, Depends(allow("clinician", "engineer", "auditor", "admin", scope="feedback:read"))]
ShortText = Annotated[str, Query(max_length=200)]
JUDGED: tuple[Judged, ...] = get_args(Judged)
PAGE_SIZE = 50


@router.get("/traces")
def traces_page(
    request: Request, caller: TraceReader, version: ShortText = "", q: ShortText = "", judged: ShortText = "",
    since: ShortText = "", until: ShortText = "", before: Annotated[int | None, Query(ge=1, lt=2**63)] = None,
) -> Response:  # fmt: skip
    store = store_of(request)
    fields = {"version": version.strip(), "q": q.strip(), "judged": chosen(judged, JUDGED), "since": since, "until": until}
    wanted: Judged | None = next((name for name in JUDGED if name == fields["judged"]), None)
    which = TraceFilter(fields["version"], fields["q"], wanted, day_start(since), day_end(until))
    rows = trace_rows.list_traces(store, which, before=before, limit=PAGE_SIZE + 1)
    shown = rows[:PAGE_SIZE]
    context: dict[str, Any] = {
        "rows": shown, "feedback": marks.feedback_on_traces(store, [row.trace_id for row in shown]), "fields": fields,
        "versions": trace_rows.recent_versions(store), "kinds": JUDGED, "filtered": any(fields.values()),
        "older": address("/web/traces", **fields, before=shown[-1].row) if len(rows) > PAGE_SIZE else "",
        "newest": address("/web/traces", **fields) if before else "",
    }  # fmt: skip
    return show(request, caller, "traces.html", **context)


@router.get("/traces/{trace_id}")
def trace_page(request: Request, caller: TraceReader, trace_id: str) -> Response:
    store, t = store_of(request), translator_of(request)
    withheld, reads = trace_rows.is_withheld(store, trace_id), caller.role in TEXT_READERS
    trace = _read(store, trace_id, caller if reads and not withheld else None)
    if trace is None:
        raise NotFoundError("There is no such trace")
    said = trace_rows.said_about(store, trace_id)
    judged = not reads or any(record.by == caller.user_id for record in said)
    rules, passages, guards = (_listed(trace, name) for name in ("rules", "passages", "guards"))
    context: dict[str, Any] = {
        "trace": trace, "said": said, "who": People(store, t), "reads": reads, "withheld": withheld, "judged": judged,
        "reward": rewards_of(store, [trace_id]).get(trace_id) if judged else None, "rules": rules, "passages": passages,
        "guards": guards, "may_judge": reads and not withheld,
    }  # fmt: skip
    return show(request, caller, "trace.html", **context)


def _read(store: Store, trace_id: str, reader: Caller | None) -> Trace | None:
    """The trace; with a reader the audit log says so first, because the page shows its text."""
    if reader is None:
        return crud.get(store, Trace, trace_id)
    return get_audited(store, Trace, trace_id, actor=reader.user_id, purpose="trace page")


def _listed(trace: Trace, name: str) -> list[Any]:
    value = trace.meta.get(name)
    return value if isinstance(value, list) else []
