"""Deployments: what answers now, what each model server has, the history with its alarms; roll back, deploy, clear a block."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, NotFoundError
from medloop.api.routes.deploy import DEPLOYERS, STOPPERS, Deployer, DeployReader, Stopper
from medloop.contracts.deploy import DeployKind
from medloop.errors import BusyError, ConfigError, InputError, ResultError
from medloop.loop.deploy import deploy_alias, deploy_status, open_fleet
from medloop.loop.rollback import block_version, clear_block, roll_back
from medloop.privacy.phi.reason import LONGEST_REASON
from medloop.store.records.deploy_events import events
from medloop.store.records.routes import live_route, routes
from medloop.web.people import People
from medloop.web.render import FormFields, redirect, show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

MOST_EVENTS = 30
SHOWN: tuple[DeployKind, ...] = ("switch", "fail", "alarm", "block", "clear", "problem", "restore", "unload")
PROBLEMS = (InputError, ResultError, BusyError, ConfigError)


@router.get("/deployments")
def deployments_page(request: Request, caller: DeployReader, done: Annotated[str, Query(max_length=20)] = "") -> Response:
    t = translator_of(request)
    note, live = "", live_route(store_of(request))
    if done == "live" and live is not None:
        note = t("deployments_done", name=live.served_name)
    notes = {"clear": "deployments_cleared", "block": "deployments_stopped"}
    return _show(request, caller, note=note or (t(notes[done]) if done in notes else ""))


@router.post("/deployments/rollback")
def roll_back_step(request: Request, caller: Stopper, form: FormFields) -> Response:
    check_rate(request, caller)
    if form.get("confirm") != "yes":
        return _show(request, caller, 422, problem=translator_of(request)("deployments_not_confirmed"))
    to = form.get("to", "")
    try:
        with open_fleet(store_of(request)) as fleet:
            roll_back(fleet, actor=caller.user_id, reason=form.get("reason", ""), to=to or None)
    except PROBLEMS as error:
        return _refused(request, caller, error)
    return redirect("/web/deployments?done=live")


@router.post("/deployments/block")
def block_step(request: Request, caller: Stopper, form: FormFields) -> Response:
    check_rate(request, caller)
    if form.get("confirm") != "yes":
        return _show(request, caller, 422, problem=translator_of(request)("deployments_not_confirmed"))
    try:
        block_version(store_of(request), _number(form), actor=caller.user_id, reason=form.get("reason", ""))
    except PROBLEMS as error:
        return _refused(request, caller, error)
    return redirect("/web/deployments?done=block")


@router.post("/deployments/{step}")
def change(request: Request, caller: Deployer, step: str, form: FormFields) -> Response:
    if step not in ("deploy", "clear"):
        raise NotFoundError("There is no such step")
    check_rate(request, caller)
    if form.get("confirm") != "yes":
        return _show(request, caller, 422, problem=translator_of(request)("deployments_not_confirmed"))
    store, reason = store_of(request), form.get("reason", "")
    try:
        if step == "clear":
            clear_block(store, _number(form), actor=caller.user_id, reason=reason)
            return redirect("/web/deployments?done=clear")
        with open_fleet(store) as fleet:
            deploy_alias(fleet, actor=caller.user_id, reason=reason)
    except PROBLEMS as error:
        return _refused(request, caller, error)
    return redirect("/web/deployments?done=live")


def _number(form: FormFields) -> int:
    number = form.get("version", "")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise InputError("There is no such version")
    return int(number)


def _refused(request: Request, caller: Caller, error: Exception) -> Response:
    code = 422 if isinstance(error, InputError) else 409
    return _show(request, caller, code, problem=translator_of(request)("deployments_not_done"), detail=str(error))


def _show(
    request: Request, caller: Caller, code: int = 200, *, note: str = "", problem: str = "", detail: str = ""
) -> Response:  # fmt: skip
    store = store_of(request)
    status = deploy_status(store)
    earlier = dict.fromkeys(route.version for route in routes(store, limit=200) if route.version is not None)
    live = status.live
    context: dict[str, Any] = {
        "status": status, "rows": events(store, limit=MOST_EVENTS, kinds=SHOWN), "who": People(store, translator_of(request)),
        "stoppable": sorted({route.version for route in status.sites.values() if live is None or route.version != live.version}),
        "earlier": [version for version in earlier if live is None or version != live.version],
        "may_deploy": caller.role in DEPLOYERS, "may_stop": caller.role in STOPPERS, "max_reason": LONGEST_REASON,
        "note": note, "problem": problem, "detail": detail,
    }  # fmt: skip
    return show(request, caller, "deployments.html", code, **context)
