"""`/api/v1/users`: who may use the service and who waits for a second admin; approve a role that another admin has granted.

Nothing else about users is done over HTTP: a program must not make an account that reads patients' words.
"""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.deps import authenticator_of, check_rate, store_of
from medloop.api.routes.feedback import REFUSED
from medloop.api.routes.sites import SiteAdmin as UserAdmin
from medloop.store.records import users
from medloop.store.records.users import Role

router = APIRouter(prefix="/api/v1/users", tags=["users"])

Json = dict[str, Any]
ERRORS: dict[int | str, Json] = {code: REFUSED[code] for code in (401, 422, 429, 503)}
ERRORS |= {403: {"description": "Another admin has to approve this."}}


class ApproveBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Role = Field(description="The role that is approved; 422 if another one waits by now.")


@router.get("", response_model=Json, responses=ERRORS)
def list_users(request: Request, caller: UserAdmin) -> Response:
    """All users with role, site and state, and who asked for a role that waits."""
    check_rate(request, caller)
    known = users.list_users(store_of(request))
    names = {user.user_id: user.name for user in known}
    rows = [
        {
            "name": user.name, "role": user.role, "site": user.site, "state": user.state,
            "created": user.created.isoformat(), "requested_by": names.get(user.requested_by or ""),
        }
        for user in known
    ]  # fmt: skip
    return JSONResponse({"users": rows})


@router.post("/{name}/approve", response_model=Json, responses=ERRORS)
def approve(name: Annotated[str, Path(max_length=64)], body: ApproveBody, request: Request, caller: UserAdmin) -> Response:
    """Let in a user whose role another admin has granted. Nobody approves what they asked for, or their own account."""
    check_rate(request, caller)
    store = store_of(request)
    user = users.get_user(store, name)
    users.approve_user(store, replace(user, role=body.role), actor=caller.user_id)
    authenticator_of(request).forget()
    return JSONResponse({"name": name, "role": body.role, "state": "disabled" if user.disabled else "active"})
