"""Experiments on live traffic: the list, and one with its curve, guards, sample ratio and decision. Numbers only, no texts.

The page of a running experiment asks for its newest numbers every few seconds (static/experiments.js); without scripts it is
reloaded by hand.
"""

import json
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from markupsafe import Markup

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, NotFoundError
from medloop.api.routes.experiments import OWNERS, ExperimentOwner, ExperimentReader
from medloop.contracts.experiment import CurvePoint, Estimate, ExperimentReport
from medloop.errors import InputError
from medloop.experiment.report_page import curve_plot
from medloop.loop import experiment as loop
from medloop.loop.experiment_watch import ReportCache
from medloop.privacy.phi.reason import LONGEST_REASON
from medloop.store.db import Store
from medloop.store.records import experiments
from medloop.store.records.experiments import ExperimentStateError, NoSuchExperimentError
from medloop.web.lists import chosen
from medloop.web.people import People
from medloop.web.render import Figure, FormFields, redirect, show, translator_of
from medloop.web.told import told
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

STEPS = ("start", "ramp", "stop", "decide")
MOST = 100
TABLE_ROWS = 20  # of the curve, as a table


@router.get("/experiments")
def experiment_list(
    request: Request, caller: ExperimentReader, site: Annotated[str, Query(max_length=64)] = ""
) -> Response:  # fmt: skip
    known = experiments.every(store_of(request))
    sites = tuple(sorted({row.plan.site for row in known}))
    site = chosen(site, sites)
    rows = [(row, loop.verdict_of(row)) for row in known if site in ("", row.plan.site)][:MOST]
    return show(request, caller, "experiments.html", rows=rows, sites=sites, site=site)


@router.get("/experiments/{experiment_id}")
def experiment_page(request: Request, caller: ExperimentReader, experiment_id: str) -> Response:
    return _show(request, caller, experiment_id)


@router.get("/experiments/{experiment_id}/live")
def experiment_live(request: Request, caller: ExperimentReader, experiment_id: str) -> Response:
    """The part of the page that moves; no page of its own."""
    answer = show(request, caller, "experiment_live.html", **_context(request, caller, experiment_id))
    answer.headers["Cache-Control"] = "no-store"
    return answer


@router.post("/experiments/{experiment_id}/{step}")
def take_step(request: Request, caller: ExperimentOwner, experiment_id: str, step: str, form: FormFields) -> Response:
    if step not in STEPS:
        raise NotFoundError("There is no such step")
    check_rate(request, caller)
    t = translator_of(request)
    if form.get("confirm") != "yes":
        return _show(request, caller, experiment_id, 422, problem=t("experiment_not_confirmed"))
    try:
        _take(store_of(request), experiment_id, step, form, caller.user_id)
    except NoSuchExperimentError:
        raise
    except InputError as error:
        code = 409 if isinstance(error, ExperimentStateError) else 422
        return _show(request, caller, experiment_id, code, problem=t("experiment_not_done"), detail=str(error))
    return redirect(f"/web/experiments/{experiment_id}")


def _take(store: Store, experiment_id: str, step: str, form: dict[str, str], by: str) -> None:
    reason = form.get("reason", "")
    if step in ("start", "ramp"):
        call = loop.start if step == "start" else loop.ramp
        call(store, experiment_id, enrolled=_share(form.get("share", "")), by=by)
    elif step == "stop":
        loop.stop(store, experiment_id, by=by, reason=reason)
    else:
        if not reason.strip():
            raise InputError("A decision needs a reason", "Write why, without names of people")
        loop.decide(store, experiment_id, adopt=form.get("choice") == "adopt", by=by, reason=reason)


def _share(text: str) -> float:
    try:
        share = float(text) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InputError("The share of the users is a number from 1 to 100", "Write it in percent")
    return share


def _show(
    request: Request, caller: Caller, experiment_id: str, code: int = 200, *, problem: str = "", detail: str = ""
) -> Response:  # fmt: skip
    context = _context(request, caller, experiment_id) | {"problem": problem, "detail": detail}
    return show(request, caller, "experiment.html", code, **context)


def _context(request: Request, caller: Caller, experiment_id: str) -> dict[str, Any]:
    store, t = store_of(request), translator_of(request)
    report = _reports(request).get(experiment_id)
    done = sum(report.primary.users.values())
    return {
        "report": report, "plan": report.plan, "figure": _figure(report, t), "points": _points(report.curve),
        "who": People(store, t), "may_change": caller.role in OWNERS, "max_reason": LONGEST_REASON, "done": done,
        "interval": partial(_interval, t), "guard_alpha": sum(rule.alpha for rule in report.plan.guards),
        "told": told,
    }  # fmt: skip


def _reports(request: Request) -> ReportCache:
    state = request.app.state
    if not hasattr(state, "experiment_reports"):
        state.experiment_reports = ReportCache(store_of(request))
    cache: ReportCache = state.experiment_reports
    return cache


def _figure(report: ExperimentReport, t: Translator) -> Figure | None:
    """The curve, and some of its points as a table."""
    if not report.curve:
        return None
    title = t("experiment_curve", metric=t(f"experiment_metric_{report.plan.primary}"))
    svg = Markup(curve_plot(report, title=title, about=_interval(t, report.primary)))  # plots escapes its texts itself
    step = max(1, len(report.curve) // TABLE_ROWS)
    chosen = [*report.curve[:-1:step], report.curve[-1]]
    rows = [(f"{point.users:,}", f"{point.difference:+.3f}", f"{point.low:+.3f}", f"{point.high:+.3f}") for point in chosen]
    head = (t("experiment_users"), t("experiment_difference"), t("experiment_low"), t("experiment_high"))
    return Figure(title, svg, t("experiment_curve_hint"), head, rows)


def _points(curve: tuple[CurvePoint, ...]) -> str:
    """For the read-out of the script: users, difference, low, high."""
    return json.dumps(
        [[point.users, *(round(value, 4) for value in (point.difference, point.low, point.high))] for point in curve]
    )


def _interval(t: Translator, row: Estimate) -> str:
    if row.difference is None or row.low is None or row.high is None:
        return t("experiment_too_few")
    low, high = f"{row.low:+.3f}", f"{row.high:+.3f}"
    return t("experiment_interval", value=f"{row.difference:+.3f}", low=low, high=high)
