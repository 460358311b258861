"""The home page: what to do first in this role, how safe the live version is, where the loop stands, what changed since the last
visit."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.feedback.insight.alerts import standing_alerts
from medloop.feedback.review import queue
from medloop.loop.inspection import read_week
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import erasure_requests, incident_rows, quarantine, trace_rows, users
from medloop.store.records.trace_rows import TraceFilter
from medloop.web.lists import address
from medloop.web.loop_strip import loop_view
from medloop.web.navigation import EVERYBODY, MENU
from medloop.web.pages.login import Anyone, AnySite
from medloop.web.render import redirect, show, translator_of
from medloop.web.review.flow import is_senior
from medloop.web.words import Translator

router = APIRouter(include_in_schema=False)

RECORDS = ("rlhf_feedback.add", "rlhf_preferences.add", "rlhf_corrections.add")
# What a role is told about since its last visit: the text, the actions that are counted, the roles.
NEWS = (
    ("news_settings", ("settings.change",), EVERYBODY, "settings"),
    ("news_incidents", ("incidents.add",), MENU["incidents"], "incidents"),
    ("news_closed", ("incidents.close",), MENU["incidents"], "incidents"),
    ("news_records", RECORDS, MENU["dashboard"], "dashboard"),
    ("news_artifacts", ("artifacts.add",), MENU["dashboard"], "datasets"),
    ("news_gates", ("gate.decide",), MENU["gate"], "gate"),
    ("news_deployed", ("routes.change",), MENU["deployments"], "deployments"),
    ("news_rules", ("codebook.propose",), MENU["codebook"], "codebook"),
    ("news_users", ("users.add", "users.change"), ("auditor", "admin"), "users"),
    ("news_refused", ("sessions.refused",), ("auditor", "admin"), "audit"),
    ("news_reads", ("rlhf_feedback.read", "traces.read"), ("auditor",), "audit"),
)


@dataclass(frozen=True)
class NewsItem:
    text: str
    link: str


@dataclass(frozen=True)
class FirstStep:
    """What a newcomer does in a workspace where nothing has happened yet: a page to open, or a command for a terminal."""

    text: str
    link: str = ""
    label: str = ""
    command: str = ""


# By role: (text, page, its address) or (text, command).
FIRST_STEPS: dict[str, tuple[tuple[str, ...], ...]] = {
    "clinician": (
        ("first_chat", "chat", "/web/chat"), ("first_rate", "rate", "/web/rate?own=true"),
        ("first_history", "history", "/web/history"),
    ),
    "annotator": (("first_queue", "queue", "/web/queue"), ("first_rules", "codebook", "/web/codebook?state=active")),
    "engineer": (
        ("first_serve", "api serve --with-model embedded:tiny"), ("first_import", "data import FILE --name NAME"),
        ("first_cycle", "loop run --dry-run"),
    ),
    "auditor": (
        ("first_audit", "audit", "/web/audit?check=true"), ("first_policy", "gate", "/web/gate#policy"),
        ("first_privacy", "privacy", "/web/privacy"),
    ),
    "admin": (
        ("first_users", "users", "/web/users"), ("first_settings", "settings", "/web/settings"),
        ("first_guidelines", "settings", "/web/settings/guidelines"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """One thing to do; `urgent` ones are about safety."""

    text: str
    link: str
    urgent: bool = False


@router.get("/")
@router.get("/web")
def root() -> Response:
    return redirect("/web/")


@router.get("/web/")
def home(request: Request, caller: AnySite) -> Response:
    if caller.site != DEFAULT_SITE:  # the loop as it stands has records of all sites
        return redirect("/web/chat")
    store, t = store_of(request), translator_of(request)
    return show(request, caller, "home.html", **_moving(store, caller, t), news=_news(store, caller, t))


@router.get("/web/loop")
def loop_part(request: Request, caller: Anyone) -> Response:
    """The part of the home page that moves; no page of its own."""
    answer = show(request, caller, "loop.html", **_moving(store_of(request), caller, translator_of(request)))
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _moving(store: Store, caller: Caller, t: Translator) -> dict[str, Any]:
    view = loop_view(store, caller.role, t)
    has_begun = any(stage.count != "0" for stage in view.stages) or trace_rows.list_traces(
        store, TraceFilter(), before=None, limit=1
    )
    steps = [] if has_begun else list(_first_steps(caller.role, t))
    return {"tasks": list(_tasks(store, caller, t)), "view": view, "steps": steps}


def _first_steps(role: str, t: Translator) -> Iterator[FirstStep]:
    for key, *where in FIRST_STEPS[role]:
        match where:
            case [page, link]:
                yield FirstStep(t(key), link, t(f"nav_{page}"))
            case [command]:
                yield FirstStep(t(key), command=f"medloop {command}")


def _tasks(store: Store, caller: Caller, t: Translator) -> Iterator[Task]:
    """What waits for this person, the most urgent first."""
    if caller.role in MENU["audit"] and store.row_alarm:
        yield Task(t("task_rows", n=store.row_alarm), address("/web/audit", check="true"), urgent=True)
    if caller.role in MENU["incidents"]:
        counts = incident_rows.count_incidents(store)
        if caller.role == "clinician" and (proposed := incident_rows.count_proposed(store, not_by=caller.user_id)):
            yield Task(t("task_confirm", n=proposed), address("/web/incidents", state="proposed"), urgent=True)
        if counts.open:
            yield Task(t("task_incidents", n=counts.open), "/web/incidents", urgent=True)
    if caller.role in MENU["trust"] and (drifted := standing_alerts(store.settings.workspace)):
        version = str(drifted[0].values.get("reward", ""))
        yield Task(t("task_drift", n=len(drifted)), address("/web/trust", version=version), urgent=True)
    if caller.role in MENU["users"] and (waiting := users.count_waiting(store, not_by=caller.user_id)):
        yield Task(t("task_approve", n=waiting), address("/web/users", state="waits"))
    if caller.role in MENU["approvals"]:
        if asked := sum(row.requested_by != caller.user_id for row in erasure_requests.waiting(store)):
            yield Task(t("task_erasures", n=asked), "/web/approvals")
    if caller.role in MENU["queue"] and (left := queue.count_left(store, caller.user_id, senior=is_senior(caller))):
        yield Task(t("task_queue", n=left), "/web/queue")
    if caller.role in MENU["inspect"]:
        week = read_week(store.settings, caller.name)
        if left := len(week.answers) - week.done:
            yield Task(t("task_inspect", n=left), "/web/inspect")
    if caller.role in MENU["quarantine"] and (held := quarantine.count(store, not_by=caller.user_id)):
        yield Task(t("task_quarantine", n=held), "/web/quarantine")
    if caller.role == "engineer" and (held := quarantine.count(store)):
        yield Task(t("task_held", n=held), "/web/dashboard")


def _news(store: Store, caller: Caller, t: Translator) -> list[NewsItem]:
    counts = audit.counts_since_login(store, caller.user_id)
    told = (
        (key, sum(counts.get(action, 0) for action in actions), page)
        for key, actions, roles, page in NEWS
        if caller.role in roles
    )
    return [NewsItem(t(key, n=f"{n:,}"), f"/web/{page}" if caller.role in MENU[page] else "") for key, n, page in told if n]
