"""The audit log: newest first, filtered by action or person, with a check of the whole hash chain."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller, allow
from medloop.store import audit
from medloop.store.records import users
from medloop.web.render import show

router = APIRouter(prefix="/web", include_in_schema=False)

Auditor = Annotated[Caller, Depends(allow("auditor", scope="audit"))]
PAGE_SIZE = 50


@router.get("/audit")
def audit_page(
    request: Request, caller: Auditor, before: Annotated[int | None, Query(ge=1)] = None,
    action: Annotated[str, Query(max_length=64)] = "", actor: Annotated[str, Query(max_length=128)] = "", check: bool = False,
) -> Response:  # fmt: skip
    """People are shown by name; `actor` may be a name or an id."""
    store = store_of(request)
    names = {user.user_id: user.name for user in users.list_users(store)}
    actor_id = next((user_id for user_id, name in names.items() if name == actor), actor)
    rows = audit.page(store, before=before, action=action or None, actor=actor_id or None, limit=PAGE_SIZE)
    context: dict[str, Any] = {"rows": rows, "names": names, "action": action, "actor": actor, "paged": before is not None}
    context["older"] = rows[-1]["seq"] if len(rows) == PAGE_SIZE else None
    context["report"] = audit.verify(store) if check else None
    return show(request, caller, "audit.html", **context)
