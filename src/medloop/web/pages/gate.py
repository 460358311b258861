"""The gate: verdicts on models, each with its checks, and what people add: sign-offs and waivers. Numbers only, no texts."""

from datetime import UTC, date, datetime, time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from medloop.api.deps import check_rate, store_of
from medloop.api.limits import QueueFullError
from medloop.api.policy import Caller, NotFoundError
from medloop.api.routes.gate import RUNNERS, GateReader, GateRunner, GateSigner
from medloop.api.task_jobs import place_of
from medloop.contracts import utc_now
from medloop.contracts.gate import GateCheck, GateResult
from medloop.contracts.gate_config import GateConfig
from medloop.errors import InputError, MedloopError
from medloop.jobs import queue
from medloop.jobs.submit import submit_gate
from medloop.knobs import load_config
from medloop.loop.gate_policy import adopt, adopt_proposal, policy_of, proposals, withdraw
from medloop.models.find import adapter_names
from medloop.store.db import Store
from medloop.store.records import gates
from medloop.web.gate_words import GateWords, check_words, in_words, setting_words
from medloop.web.people import People
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.told import told

router = APIRouter(prefix="/web", include_in_schema=False)

STEPS = ("sign", "refuse", "waive", "approve")
ORDER = ("fail", "not_enough_evidence", "pass")
SHOWN = 100  # verdicts on the list
SHOWN_RUNS = 5
ADOPTED = {"holds": "gate_policy_holds", "waits": "gate_policy_waits", "withdrawn": "gate_policy_withdrawn"}


@router.get("/gate")
def gate_list(
    request: Request, caller: GateReader, run: Annotated[str, Query(max_length=64)] = "",
    policy: Annotated[str, Query(max_length=10)] = "",
) -> Response:  # fmt: skip
    key = ADOPTED.get(policy, "gate_run_queued" if run else "")
    return _show_list(request, caller, note=translator_of(request)(key) if key else "")


@router.post("/gate/policy")
def adopt_policy(request: Request, caller: GateSigner, form: FormFields) -> Response:
    """One setting of the policy, or settings that another clinician asked for; weaker ones need two clinicians."""
    check_rate(request, caller)
    store, name = store_of(request), form.get("setting", "")
    try:
        if form.get("withdraw"):
            withdraw(store, form["withdraw"], by=caller.user_id)
            return redirect("/web/gate?policy=withdrawn")
        if waiting := form.get("waiting", ""):
            adopted = adopt_proposal(store, waiting, by=caller.user_id)
        elif name not in GateConfig.model_fields:
            raise InputError("There is no such setting", "Choose one of the list")
        else:
            now = policy_of(store).config.model_dump(mode="json")
            config = load_config(GateConfig, pairs=[f"{name}={form.get('value', '').strip()}"], flags={}, defaults=now)
            adopted = adopt(store, config, by=caller.user_id)
    except MedloopError as error:
        return _show_list(request, caller, 422, problem=told(str(error), translator_of(request)), typed=form, about="policy")
    return redirect(f"/web/gate?policy={'waits' if adopted.waits else 'holds'}")


@router.post("/gate/runs")
def start_run(request: Request, caller: GateRunner, form: FormFields) -> Response:
    """Queue the gate for a model, with the settings of the policy; the API takes others."""
    check_rate(request, caller)
    store = store_of(request)
    model, baseline = form.get("model", "").strip(), form.get("baseline", "").strip()
    try:
        with place_of(request, caller, "GATE"):
            job_id = submit_gate(model, baseline or None, policy_of(store).config, store.settings, actor=caller.user_id)
    except QueueFullError:
        raise
    except MedloopError:
        refused = GateWords(translator_of(request)("gate_run_refused"), translator_of(request).language)
        return _show_list(request, caller, 422, problem=refused, typed=form)
    return redirect(f"/web/gate?run={job_id}")


def _show_list(
    request: Request, caller: Caller, code: int = 200, *, note: str = "", problem: GateWords | None = None,
    typed: dict[str, str] | None = None, about: str = "",
) -> Response:  # fmt: skip
    store, who = store_of(request), People(store_of(request), translator_of(request))
    policy, results = policy_of(store), gates.list_gates(store, limit=SHOWN)
    rows = [(result, result.content_id(), _signed(store, result), gates.waived_checks(store, result)) for result in results]
    jobs = queue.page(store.settings, limit=SHOWN_RUNS, pools=("gate",)).jobs
    runs = [(job, queue.task_status(job.job_id, "GATE", store.settings).result) for job in jobs]
    models = sorted(f"{store.settings.model}+{name}" for name in adapter_names(store.settings))
    return show(
        request, caller, "gates.html", code, rows=rows, runs=runs, told=told, models=models, may_run=caller.role in RUNNERS,
        note=note, problem=problem, typed=typed or {}, about=about, policy=policy, proposals=proposals(store), who=who,
        setting_of=setting_words, adopters=[who(person) for person in policy.adopted_by],
        settings=GateConfig().model_dump(mode="json"), may_sign=caller.role in gates.SIGNERS, viewer_id=caller.user_id,
    )  # fmt: skip


@router.get("/gate/{gate}")
def gate_page(request: Request, caller: GateReader, gate: str, done: Annotated[str, Query(max_length=10)] = "") -> Response:
    return _show(request, caller, gate, note=translator_of(request)(f"gate_done_{done}") if done in STEPS else "")


@router.post("/gate/{gate}/{step}")
def take_step(request: Request, caller: GateReader, gate: str, step: str, form: FormFields) -> Response:
    if step not in STEPS:
        raise NotFoundError("There is no such step")
    check_rate(request, caller)
    try:
        _take(store_of(request), caller, gate, step, form)
    except gates.NoSuchGateError:
        raise
    except gates.GatePersonError:
        not_you = GateWords(translator_of(request)("gate_not_you"), translator_of(request).language)
        return _show(request, caller, gate, 403, problem=not_you, typed=form, about=step)
    except InputError as error:
        code = 409 if isinstance(error, gates.GateDecidedError) else 422
        return _show(request, caller, gate, code, problem=told(str(error), translator_of(request)), typed=form, about=step)
    return redirect(f"/web/gate/{gate}?done={step}")


def _take(store: Store, caller: Caller, gate: str, step: str, form: dict[str, str]) -> None:
    text = form.get("text", "")
    if step == "approve":
        gates.approve_waiver(store, form.get("waiver", ""), by=caller.user_id)
    elif step == "waive":
        artifact, expires = gates.get_gate(store, gate).artifact, _end_of(form.get("until", ""))
        gates.request_waiver(store, artifact, check=form.get("check", ""), reason=text, author=caller.user_id, expires=expires)
    else:
        gates.sign(store, gate, by=caller.user_id, approved=step == "sign", comment=text)


def _end_of(day: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(day), time(23, 59, 59), UTC)
    except ValueError:
        raise InputError("The last day is not a date", "Use YYYY-MM-DD") from None


def _show(
    request: Request, caller: Caller, gate: str, code: int = 200, *, note: str = "", problem: GateWords | None = None,
    typed: dict[str, str] | None = None, about: str = "",
) -> Response:  # fmt: skip
    store = store_of(request)
    stored = gates.get_gate(store, gate)
    gate_id, result = stored.content_id(), gates.with_waivers(store, stored)
    waivers = gates.waiver_rows(store, result.artifact)
    newest = gates.latest_gate(store, result.artifact)
    t, refusal = translator_of(request), gates.refusal_parts(store, result.artifact)
    context: dict[str, Any] = {
        "result": result, "gate_id": gate_id, "groups": _groups(result.checks), "who": People(store, t),
        "sign_offs": gates.sign_offs_of(store, gate_id), "signed": _signed(store, stored), "waivers": waivers,
        "sees_incidents": refusal is not None and any(part.key == "refused_incidents" for part in refusal),
        "waived": gates.waived_checks(store, stored), "refusal": None if refusal is None else in_words(refusal, t),
        "reason_of": check_words, "setting_of": setting_words,
        "now": utc_now(), "is_newest": newest == stored,
        "may_sign": caller.role in gates.SIGNERS, "may_waive": caller.role in gates.WAIVER_AUTHORS,
        "may_approve": caller.role in gates.WAIVER_APPROVERS, "viewer_id": caller.user_id, "max_text": gates.MAX_TEXT,
        "note": note, "problem": problem, "typed": typed or {}, "about": about,
    }  # fmt: skip
    unlifted = [check.name for check in result.checks if check.outcome != "pass" and not check.waiver]
    context |= {"open_checks": [name for name in unlifted if name not in gates.NEVER_WAIVED], "is_signable": not unlifted}
    return show(request, caller, "gate.html", code, **context)


def _signed(store: Store, result: GateResult) -> str:
    """How many have signed, of how many."""
    return f"{len(gates.approvals(store, result))} / {gates.sign_offs_needed(store, result)}"


def _groups(checks: tuple[GateCheck, ...]) -> list[tuple[str, list[GateCheck]]]:
    """By outcome, what forbids a promotion first."""
    groups = ((outcome, [check for check in checks if check.outcome == outcome]) for outcome in ORDER)
    return [(outcome, rows) for outcome, rows in groups if rows]
