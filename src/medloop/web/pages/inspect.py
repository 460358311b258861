"""The weekly inspection: this week's sample, one answer after another, how far it is, and whether the judge agrees.

The next answer comes at once after sending, like in the queue. No score of a machine is shown beside an answer; the agreement
below is counted over answers that somebody has judged.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import check_rate, settings_of, store_of
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.api.task_jobs import place_of
from medloop.contracts.feedback import FAULT_AXES
from medloop.errors import BusyError, ConfigError, InputError
from medloop.evaluate.inspection.pool import default_files
from medloop.evaluate.inspection.review_form import ImportedRow
from medloop.evaluate.inspection.sample_report import VERDICTS
from medloop.evaluate.inspection.weekly_sample import week_of
from medloop.feedback.submit.bodies import MAX_TEXT
from medloop.jobs import queue
from medloop.jobs.submit import submit_inspection
from medloop.loop.inspection import InspectionWeek, WeekAnswer, judge, read_week, this_week
from medloop.settings import Settings
from medloop.web.guidelines import read_guidelines
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.review.form import ReviewForm, new_key
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

Inspector = Annotated[Caller, Depends(allow("clinician", scope="queue"))]
ShortText = Annotated[str, Query(max_length=80)]
FATES = ("saved", "pair", "red_team", "incident", "same")


@router.get("/inspect")
def inspect_page(
    request: Request,
    caller: Inspector,
    id: ShortText = "",
    after: ShortText = "",
    saved: ShortText = "",
    overview: bool = False,
) -> Response:
    week = read_week(settings_of(request), caller.name)
    answer = None if overview else week.find(id) if id else week.next_answer(after)
    if id and answer is None and not overview:
        raise NotFoundError("This week's sample has no such answer")
    note = translator_of(request)(f"inspect_done_{saved}") if saved in FATES else ""
    return _show(request, caller, week, answer, _form(caller, answer), note=note)


@router.post("/inspect")
def send_verdict(request: Request, caller: Inspector, form: FormFields) -> Response:
    check_rate(request, caller)
    t, week = translator_of(request), read_week(settings_of(request), caller.name)
    answer = week.find(form.get("id", ""))
    if answer is None:
        raise NotFoundError("This week's sample has no such answer")
    confirmed = form.pop("sure", "")
    drawn = ReviewForm(caller.csrf, new_key(), {"id": answer.id}, form)
    if confirmed == "no":
        return _show(request, caller, week, answer, replace(drawn, values={**form, "verdict": ""}))
    errors = _problems(form, t)
    reported = answer.verdict is not None and answer.verdict.verdict == "dangerous"
    if not errors and form["verdict"] == "dangerous" and not reported and confirmed != "yes":
        return _show(request, caller, week, answer, drawn, ask_critical=True)
    if not errors:
        try:
            stored = judge(settings_of(request), store_of(request), _cells(form, caller.name), actor=caller.user_id)
        except InputError:  # what else can be wrong with a verdict: a text that names somebody
            errors = {"": t("inspect_names_somebody")}
        except BusyError:
            errors = {"": t("busy")}
        else:
            fate = _fate(stored)
            return redirect(f"/web/inspect?{urlencode({'after': answer.id, 'saved': fate})}")
    return _show(request, caller, week, answer, replace(drawn, errors=errors), 422)


@router.post("/inspect/draw")
def draw(request: Request, caller: Inspector) -> Response:
    """Have this week's sample drawn from the scored answers of the workspace, by a job; a week is drawn once."""
    check_rate(request, caller)
    settings = settings_of(request)
    try:
        default_files(settings.workspace)
    except ConfigError:
        week = read_week(settings, caller.name)
        return _show(request, caller, week, None, None, 409, problem=translator_of(request)("inspect_no_answers"))
    if not read_week(settings, caller.name).answers:
        with place_of(request, caller, "INSPECT"):
            submit_inspection(this_week(), settings, actor=caller.user_id)
    return redirect("/web/inspect")


@router.get("/inspect/drawing")
def drawing_part(request: Request, caller: Inspector) -> Response:
    """The part of the page that moves while the sample is drawn; no page of its own."""
    answer = show(request, caller, "inspect_drawing.html", **_drawing(settings_of(request), caller.name))
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _drawing(settings: Settings, reader: str) -> dict[str, Any]:
    """The state of the newest job of this week that draws a sample, empty without one, and whether there is a sample."""
    newest = next(iter(queue.rows(settings, ("inspect",))), None)
    is_of_this_week = newest is not None and week_of(newest.submitted.date()) == this_week()
    return {
        "drawing": newest.state if newest and (is_of_this_week or not newest.has_ended) else "",
        "drawn": bool(read_week(settings, reader).answers),
    }


def _fate(stored: ImportedRow) -> str:
    if not stored.new:
        return "same"
    return "incident" if stored.incident else "red_team" if stored.red_team else "pair" if stored.pair else "saved"


def _problems(form: Mapping[str, str], t: Translator) -> dict[str, str]:
    errors = {} if form.get("verdict") in VERDICTS else {"verdict": t("inspect_verdict_needed")}
    return errors | {
        name: t("inspect_too_long") for name in ("corrected_answer", "comment") if len(form.get(name, "")) > MAX_TEXT
    }


def _cells(form: Mapping[str, str], reviewer: str) -> dict[str, str]:
    faults = [name for name in FAULT_AXES if form.get(f"axis_{name}") == "1"]
    none = "none" if form.get("no_fault") == "yes" and not faults else ""
    texts = {name: form.get(name, "") for name in ("id", "verdict", "score", "corrected_answer", "comment")}
    return {**texts, "faults": ", ".join(faults) or none, "reviewer": reviewer}


def _form(caller: Caller, answer: WeekAnswer | None) -> ReviewForm | None:
    """Empty, or with what this reviewer said before."""
    if answer is None:
        return None
    values: dict[str, str] = {}
    if (said := answer.verdict) is not None:
        values = {"verdict": said.verdict, "score": str(said.score or ""), "corrected_answer": said.corrected or ""}
        values |= {"comment": said.comment or "", "no_fault": "yes" if "none" in said.faults else ""}
        values |= {f"axis_{name}": "1" for name in said.faults}
    return ReviewForm(caller.csrf, new_key(), {"id": answer.id}, values)


def _show(
    request: Request, caller: Caller, week: InspectionWeek, answer: WeekAnswer | None, form: ReviewForm | None, code: int = 200,
    *, note: str = "", problem: str = "", ask_critical: bool = False,
) -> Response:  # fmt: skip
    t, settings = translator_of(request), settings_of(request)
    places = {row.id: number for number, row in enumerate(week.answers, 1)}
    context: dict[str, Any] = {
        "week": week, "answer": answer, "form": form, "note": note, "problem": problem, "places": places,
        "ask_critical": ask_critical,
        "verdicts": tuple(VERDICTS), "faults": FAULT_AXES, "draft": f"inspect {answer.id}" if answer else "",
        "guidelines": read_guidelines(store_of(request), t.language),
    }  # fmt: skip
    return show(request, caller, "inspect.html", code, **context, **({} if week.answers else _drawing(settings, caller.name)))
