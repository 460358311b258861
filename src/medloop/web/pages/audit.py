"""The audit log: newest first, filtered, exported as filtered, with a check of the whole hash chain."""

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import check_rate, store_of, writer_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.feedback_read import audit_write
from medloop.contracts import AuditEvent, canonical_json
from medloop.store import audit
from medloop.store.audit import AuditFilter
from medloop.store.db import Store
from medloop.store.files import spreadsheet
from medloop.store.integrity import IntegrityReport, verify_store
from medloop.web.lists import address
from medloop.web.people import People
from medloop.web.render import show, translator_of
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

Auditor = Annotated[Caller, Depends(allow("auditor", scope="audit"))]
ShortText = Annotated[str, Query(max_length=128)]
PAGE_SIZE = 50
MOST_SHOWN = 20  # changed rows that the page names
COLUMNS = ("seq", "timestamp", "actor", "actor_name", "action", "subject", "subject_name", "detail", "hash")


@router.get("/audit")
def audit_page(
    request: Request, caller: Auditor, before: Annotated[int | None, Query(ge=1, lt=2**63)] = None, action: ShortText = "",
    actor: ShortText = "", subject: ShortText = "", since: ShortText = "", until: ShortText = "", check: bool = False,
) -> Response:  # fmt: skip
    """People are shown by name; `actor` and `subject` may be a name or an id."""
    store, t = store_of(request), translator_of(request)
    who = People(store, t)
    fields = {"action": action.strip(), "actor": actor.strip(), "subject": subject.strip(), "since": since, "until": until}
    rows = audit.page(store, _filter(fields, who), before=before, limit=PAGE_SIZE + 1)
    older = address("/web/audit", **fields, before=rows[PAGE_SIZE - 1]["seq"]) if len(rows) > PAGE_SIZE else ""
    context: dict[str, Any] = {"rows": rows[:PAGE_SIZE], "who": who, "fields": fields, "older": older}
    context |= {"newest": address("/web/audit", **fields) if before else "", "actions": audit.recent_actions(store)}
    context["exports"] = [(form, address("/web/audit/export", form=form, **fields)) for form in ("csv", "jsonl")]
    context["report"] = _report(verify_store(store), t) if check else None
    return show(request, caller, "audit.html", **context)


@router.get("/audit/export")
async def export(
    request: Request, caller: Auditor, form: Literal["csv", "jsonl"] = "csv", action: ShortText = "", actor: ShortText = "",
    subject: ShortText = "", since: ShortText = "", until: ShortText = "",
) -> Response:  # fmt: skip
    """What the filter shows, as a file. The export itself is in the audit log before the first row leaves."""
    check_rate(request, caller)
    store = store_of(request)
    who = await run_in_threadpool(People, store, translator_of(request))
    fields = {"action": action.strip(), "actor": actor.strip(), "subject": subject.strip(), "since": since, "until": until}
    which = _filter(fields, who)
    detail: dict[str, str | int | float | bool] = {"form": form, **{name: value for name, value in fields.items() if value}}
    event = AuditEvent(actor=caller.user_id, action="audit.export", subject="audit_log", detail=detail)
    await writer_of(request).submit(audit_write(event))
    media = "text/csv; charset=utf-8" if form == "csv" else "application/x-ndjson"
    headers = {"Content-Disposition": f'attachment; filename="audit.{form}"'}
    return StreamingResponse(_lines(store, which, who, form), media_type=media, headers=headers)


def _lines(store: Store, which: AuditFilter, who: People, form: str) -> Iterator[str]:
    """The file, some rows at a time; with the names of people beside their ids."""
    headed = True
    for rows in audit.pages(store, which):
        named = [{**row, **{f"{part}_name": who.names.get(row[part], "") for part in ("actor", "subject")}} for row in rows]
        if form == "csv":
            cells = ({**row, "detail": canonical_json(row["detail"])} for row in named)
            yield spreadsheet.to_csv(COLUMNS, cells, headed=headed)
        else:
            yield "".join(canonical_json(row) + "\n" for row in named)
        headed = False
    if headed and form == "csv":
        yield spreadsheet.to_csv(COLUMNS, (), headed=True)


def _filter(fields: dict[str, str], who: People) -> AuditFilter:
    since, until = (_day(fields[name]) for name in ("since", "until"))
    return AuditFilter(fields["action"], who.id_of(fields["actor"]), who.id_of(fields["subject"]), since, until)


def _day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _report(report: IntegrityReport, t: Translator) -> tuple[bool, str]:
    """Whether the log and the guarded rows are intact, and that in words. Rows are named by table and id."""
    log, rows = report.audit, report.rows
    if log.kind is not None:
        problem = t(f"audit_bad_{log.kind}", row=log.bad_row or 0)
        return False, t.sentences(t("audit_bad"), problem, t("audit_bad_to_do", rows=f"{log.rows:,}"))
    if report.anchors.problem is not None:
        return False, t.sentences(t("audit_bad"), t("audit_bad_anchors"), t("audit_bad_to_do", rows=f"{log.rows:,}"))
    if rows.wrong:
        ids = ", ".join(f"{row.table} {row.row_id}" for row in rows.rows[:MOST_SHOWN])
        return False, t.sentences(t("audit_bad_rows", count=f"{rows.wrong:,}", ids=ids), t("audit_bad_rows_to_do"))
    intact = [t("audit_ok", rows=f"{log.rows:,}"), t("audit_ok_rows", rows=f"{rows.checked:,}")]
    if report.anchors.checked:
        intact.append(t("audit_anchored", row=f"{report.anchors.newest:,}"))
    if report.restored:
        intact.append(t("audit_restored", backup=report.restored.backup, rows=f"{report.restored.rows:,}"))
    return True, t.sentences(*intact)
