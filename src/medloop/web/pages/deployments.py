"""Deployments: what answers now, what each model server has, the history with its alarms; roll back, deploy, clear a block."""

from collections.abc import Sequence
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, NotFoundError
from medloop.api.routes.deploy import DEPLOYERS, STOPPERS, Deployer, DeployReader, Stopper
from medloop.contracts.assistant import Champion, Route
from medloop.contracts.deploy import DeployEvent, DeployKind
from medloop.contracts.gate_reasons import said
from medloop.errors import BusyError, ConfigError, InputError, ResultError
from medloop.loop.deploy import DeployChoice, deploy_alias, deploy_status, open_fleet
from medloop.loop.rollback import block_version, clear_block, roll_back, ways_back
from medloop.privacy.phi.reason import LONGEST_REASON
from medloop.store.db import Store
from medloop.store.records.deploy_events import events
from medloop.store.records.gates import refusal_parts
from medloop.store.records.routes import live_route, routes
from medloop.web.gate_words import GateWords, in_words
from medloop.web.people import People
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.told import told
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

MOST_EVENTS = 30
MOST_OTHERS = 20
SHOWN: tuple[DeployKind, ...] = ("switch", "fail", "alarm", "block", "clear", "problem", "restore", "unload")
WRITTEN: tuple[DeployKind, ...] = ("fail", "alarm", "problem", "restore", "unload")  # their reasons are medloop's own
USUAL = ("the champion", "the challenger", "deployed")  # where a person gave no reason
PROBLEMS = (InputError, ResultError, BusyError, ConfigError)


@router.get("/deployments")
def deployments_page(request: Request, caller: DeployReader, done: Annotated[str, Query(max_length=20)] = "") -> Response:
    t = translator_of(request)
    note, live = "", live_route(store_of(request))
    if done == "live" and live is not None:
        note = t("deployments_done", name=live.served_name)
    if done == "challenger" and (other := live_route(store_of(request), "challenger")) is not None:
        note = t("deployments_done_challenger", name=other.served_name)
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
        alias: Champion = "challenger" if form.get("alias") == "challenger" else "champion"
        shown = _number(form) if form.get("version") else None
        with open_fleet(store) as fleet:
            deploy_alias(fleet, alias, actor=caller.user_id, reason=reason, version=shown)
    except PROBLEMS as error:
        return _refused(request, caller, error)
    return redirect(f"/web/deployments?done={'live' if alias == 'champion' else alias}")


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
    store, t = store_of(request), translator_of(request)
    status = deploy_status(store)
    live, blocks = status.live, events(store, limit=1000, kinds=("block",))
    challenger, others = status.challenger, [choice for choice in status.choices if choice.alias is None]
    known = [(arm, route) for arm in get_args(Champion) for route in routes(store, limit=200, arm=arm)]
    context: dict[str, Any] = {
        "challenger": None if challenger and live and challenger.served_name == live.served_name else challenger,
        "instead": lambda row: _instead(row, blocks, t), "kind": lambda row: _kind(row, known),
        "status": status, "rows": [row for row in events(store, limit=MOST_EVENTS, kinds=SHOWN) if not _is_repeated(row, known)],
        "who": People(store, t),
        "stoppable": sorted({route.version for route in status.sites.values() if live is None or route.version != live.version}),
        "earlier": [stored.record.version for stored in ways_back(store, live)] if live else [],
        "may_deploy": caller.role in DEPLOYERS, "may_stop": caller.role in STOPPERS, "max_reason": LONGEST_REASON,
        "note": note, "problem": problem, "detail": told(detail, t), "told": lambda text: told(text, t),
        "reason": lambda row: _reason(row, t), "refusal_of": lambda choice: _refusal(store, choice, t),
        "holders": [choice for choice in status.choices if choice.alias], "others": others[:MOST_OTHERS],
        "unshown": len(others[MOST_OTHERS:]),
    }  # fmt: skip
    return show(request, caller, "deployments.html", code, **context)


def _reason(row: DeployEvent | Route, t: Translator) -> GateWords:
    """What medloop wrote is translated; the words of a person stay as they are, in a language that nobody knows."""
    kind = row.kind if isinstance(row, DeployEvent) else ""
    is_ours = kind in WRITTEN or row.changed_by == "medloop" or row.reason in USUAL
    return told(row.reason, t) if is_ours else GateWords(row.reason, "")


def _kind(row: DeployEvent, known: Sequence[tuple[Champion, Route]]) -> str:
    """The kind of an event, for its word: the last route before a switch says whether it was that of the challenger."""
    before = [(route.timestamp, arm) for arm, route in known if route.served_name == row.served_name]
    _, arm = max((entry for entry in before if entry[0] <= row.timestamp), default=(None, "champion"))
    return "switch_challenger" if row.kind == "switch" and arm == "challenger" else row.kind


def _is_repeated(row: DeployEvent, known: Sequence[tuple[Champion, Route]]) -> bool:
    """Whether the challenger was taken along to the version that had just become the champion: that is one step."""
    before = [route for arm, route in known if arm == "champion" and route.timestamp <= row.timestamp]
    live = max(before, key=lambda route: route.timestamp, default=None)
    return _kind(row, known) == "switch_challenger" and live is not None and live.served_name == row.served_name


def _instead(row: DeployEvent | Route, blocks: Sequence[DeployEvent], t: Translator) -> str:
    """What stands before the reason of a rollback: it is about the version that was taken back, not the one that answers."""
    block = next((one for one in blocks if one.reason == row.reason and one.timestamp <= row.timestamp), None)
    if block is None or block.served_name == row.served_name or (isinstance(row, DeployEvent) and row.kind != "switch"):
        return ""
    version = t("deployments_version", version=block.version) if block.version else block.served_name
    return t("deployments_instead", version=version)


def _refusal(store: Store, choice: DeployChoice, t: Translator) -> GateWords:
    """Why a version may not go live: what the gate says about it, else a sentence of the deployment."""
    parts = refusal_parts(store, choice.artifact)
    if parts and said(parts) == choice.refusal:
        return in_words(parts, t)
    return told(choice.refusal or "", t)
