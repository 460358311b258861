"""Lineage: everything that contains a record, and every record behind a model, drawn and as tables. Ids and counts only."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import OWN_ONLY, Caller, allow
from medloop.store.lineage_graph import UnknownSubjectError, lineage_graph, newest_made, taught_records
from medloop.store.records.users import ROLES
from medloop.web.lineage_view import detail, view
from medloop.web.render import show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

LineageReader = Annotated[Caller, Depends(allow(*ROLES, scope="feedback:read"))]
PAGE_SIZE = 50


@router.get("/lineage")
def lineage_page(
    request: Request,
    caller: LineageReader,
    of: Annotated[str, Query(max_length=300)] = "",
    id: Annotated[str, Query(max_length=300)] = "",
    after: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Without a subject the newest models and releases, to choose from. `id` is the same as `of`: pages link with it."""
    t, store, subject = translator_of(request), store_of(request), (of or id).strip()
    sender = caller.user_id if caller.role in OWN_ONLY else None
    context: dict[str, Any] = {
        "subject": subject, "after": after, "graph": None, "records": None, "unknown": False, "detail": detail,
        "own_only": sender is not None, "newest": [] if subject else newest_made(store),
    }  # fmt: skip
    if not subject:
        return show(request, caller, "lineage.html", **context)
    try:
        graph = lineage_graph(store, subject, sender=sender)
    except UnknownSubjectError:
        return show(request, caller, "lineage.html", 404, **context | {"unknown": True})
    if graph.subject.kind != "record":
        context["records"] = taught_records(store, subject, after=after, limit=PAGE_SIZE, sender=sender)
    return show(request, caller, "lineage.html", **context | {"graph": graph, "view": view(graph, t, "/web/lineage")})
