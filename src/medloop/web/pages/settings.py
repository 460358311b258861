"""The settings page: what an admin chooses for everybody. Each change is in the audit log."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller, allow
from medloop.store.records.workspace_settings import FORM_PURPOSES, consent_default, set_consent_default
from medloop.web.render import FormFields, redirect, show

router = APIRouter(prefix="/web", include_in_schema=False)

Admin = Annotated[Caller, Depends(allow("admin", scope="users"))]


@router.get("/settings")
def settings_page(request: Request, caller: Admin, saved: bool = False) -> Response:
    ticked = consent_default(store_of(request))
    return show(request, caller, "settings.html", purposes=FORM_PURPOSES, ticked=ticked, saved=saved)


@router.post("/settings")
def change_settings(request: Request, caller: Admin, form: FormFields) -> Response:
    chosen = [purpose for purpose in FORM_PURPOSES if form.get(f"consent_{purpose}") == "yes"]
    set_consent_default(store_of(request), chosen, actor=caller.user_id)
    return redirect("/web/settings?saved=true")
