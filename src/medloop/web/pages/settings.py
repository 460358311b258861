"""The settings page: what an admin chooses for everybody. Each change is in the audit log."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller, allow
from medloop.contracts.feedback import FAULT_AXES
from medloop.errors import InputError
from medloop.store.records.workspace_settings import (
    FORM_PURPOSES,
    MAX_AXES,
    axes,
    consent_default,
    set_axes,
    set_consent_default,
)
from medloop.web.render import FormFields, redirect, show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

Admin = Annotated[Caller, Depends(allow("admin", scope="users"))]


@router.get("/settings")
def settings_page(request: Request, caller: Admin, saved: bool = False) -> Response:
    return _show(request, caller, "\n".join(axes(store_of(request))), saved=saved)


@router.post("/settings")
def change_settings(request: Request, caller: Admin, form: FormFields) -> Response:
    chosen = [purpose for purpose in FORM_PURPOSES if form.get(f"consent_{purpose}") == "yes"]
    names = form.get("axes")
    try:
        if names is not None:
            set_axes(store_of(request), names.split(), actor=caller.user_id)
    except InputError:
        problem = translator_of(request)("settings_axes_bad", most=MAX_AXES)
        return _show(request, caller, names or "", problem=problem, code=422)
    set_consent_default(store_of(request), chosen, actor=caller.user_id)
    return redirect("/web/settings?saved=true")


def _show(request: Request, caller: Caller, names: str, *, saved: bool = False, problem: str = "", code: int = 200) -> Response:
    context = {"purposes": FORM_PURPOSES, "ticked": consent_default(store_of(request)), "saved": saved}
    return show(request, caller, "settings.html", code, axes=names, always=FAULT_AXES, problem=problem, **context)
