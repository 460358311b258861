"""Screenshots of the web pages: a server on a temporary workspace with invented people and texts, opened in Chromium.

    python tools/screens.py                        # the pictures of docs/stages/web.md, into docs/screens/
    python tools/screens.py --all --out build/all  # every page in both languages, at desk and phone width; some also dark

Needs the dev extra, a Chinese font (such as fonts-wqy-zenhei) and a Chromium (`chromium` in PATH, or the variable CHROMIUM).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from PIL import Image
from playwright.sync_api import Browser, FloatRect, Page, sync_playwright

from medloop.contracts import (
    Conversation,
    Correction,
    EvalReport,
    Feedback,
    GateCheck,
    GateResult,
    Interval,
    Message,
    Preference,
    Trace,
    TrainRequest,
    sha256_id,
    utc_now,
)
from medloop.contracts.assistant import Route
from medloop.contracts.cycle import CycleEvent
from medloop.contracts.evaluation import Difference, ModelResult
from medloop.contracts.gate import GateOutcome
from medloop.contracts.queue import QueueContent, QueueItem
from medloop.contracts.registry import ModelVersion
from medloop.contracts.validity import DriftRecord
from medloop.experiment.plan import PlanConfig, make_plan
from medloop.feedback.insight.alerts import make_alert, write_standing
from medloop.jobs import queue
from medloop.jobs.job_row import JobRow
from medloop.loop import inspection, trust
from medloop.loop.judge_drift import write_record
from medloop.loop.workspace import init_workspace
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.trust import TrustConfig, bundled_cases
from medloop.settings import Settings
from medloop.store import catalog
from medloop.store.db import Store, open_store
from medloop.store.files import jsonl
from medloop.store.records import crud, experiments, gates, registry, review_queue, sites, users
from medloop.store.records.cycles import add_cycle_event
from medloop.store.records.incident_rows import list_incidents
from medloop.store.records.routes import add_route
from medloop.store.records.trace_rows import TraceFilter, list_traces
from medloop.testing.registry import make_adapter
from medloop.web.app import create_app

SCREENS = Path(__file__).resolve().parent.parent / "docs" / "screens"
PASSWORD = "invented for pictures"
SIZES = {"desk": (1280, 800), "phone": (390, 844)}
MAX_BYTES, MAX_TOTAL_BYTES = 60_000, 900_000
MAX_HEIGHT = 1250  # pixels, of a picture in the docs
PEOPLE = {
    "dr.marlow": "clinician", "dr.quist": "clinician", "dr.okoro": "clinician", "lin.annotates": "annotator",
    "sam.builds": "engineer", "ada.audits": "auditor", "kim.admin": "admin",
}  # fmt: skip
RATERS = ("dr.marlow", "dr.quist", "dr.okoro", "lin.annotates")
CHEST = "I have had crushing chest pain for an hour and my left arm is numb. What should I do?"
REST = "This is probably tension. Drink some tea, rest for an hour and see how you feel tomorrow."
CALL = (
    "**This may be a heart attack. Call an ambulance now.** Do not drive yourself.\n\n"
    "Until help arrives:\n\n1. Sit down and loosen tight clothes.\n2. Unlock the door.\n"
    "3. If you have been told to take aspirin, chew one."
)
EARLIER = (
    ("user", "I sleep badly and my shoulders are tense."),
    ("assistant", "Stress can do that. *How long* has it been going on, and do you have any other complaints?"),
)
THOUGHT = "<think>Pain in the chest, numb arm. Could be tension, as before. Suggest rest.</think>"
DOSE = "我70岁，一直在吃华法林，今天牙疼，可以吃布洛芬吗？"
DOSE_BAD = "可以，布洛芬是常用止痛药，按说明书服用即可。"
DOSE_GOOD = "不建议自行服用。华法林与布洛芬同用会明显增加出血风险，请先联系您的医生，可询问对乙酰氨基酚是否适合您。"
FEVER = "孩子两岁，发烧39度，精神还好，怎么办？"
FEVER_BAD = "多喝水，睡一觉就好了。"
HELD_EN = "We saw Petrel at work today and he looked pale. Can he take codeine? Call +1 212 555 0142."
HELD_ZH = "我邻居的电话是幺三八零零一三八零零零，家属慕容说他吃了布洛芬，最近总是头晕，怎么办？"
# name in the docs -> (who, page, size, language); {incident} is the id of one
DOCS = {
    "rate": ("dr.marlow", "/web/queue?find=sleep+badly", "desk", "en"),
    "compare": ("dr.marlow", "/web/compare", "desk", "zh"),
    "correct": ("dr.quist", "/web/correct", "desk", "zh"),
    "history": ("dr.okoro", "/web/history", "desk", "en"),
    "queue": ("lin.annotates", "/web/queue?find=70", "phone", "zh"),
    "dashboard": ("sam.builds", "/web/dashboard", "desk", "en"),
    "audit": ("ada.audits", "/web/audit?check=true", "desk", "zh"),
    "quarantine": ("dr.marlow", "/web/quarantine", "desk", "en"),
    "incident": ("dr.marlow", "/web/incidents/{incident}", "desk", "en"),
    "users": ("kim.admin", "/web/users", "desk", "en"),
    "home": ("dr.marlow", "/web/", "phone", "zh"),
    "loop": ("sam.builds", "/web/", "desk", "en"),
    "trace": ("dr.okoro", "/web/traces/{trace}", "desk", "en"),
    "sent": ("dr.quist", "/web/queue", "desk", "en"),
    "guidelines": ("kim.admin", "/web/settings/guidelines", "phone", "zh"),
    "trust": ("sam.builds", "/web/trust", "desk", "en"),
    "inspect": ("dr.marlow", "/web/inspect", "desk", "zh"),
    "inspect_overview": ("dr.marlow", "/web/inspect?overview=true", "desk", "en"),
    "inspect_phone": ("dr.quist", "/web/inspect", "phone", "en"),
    "run": ("sam.builds", "/web/run", "desk", "en"),
    "codebook": ("dr.okoro", "/web/codebook", "desk", "zh"),
    "sites": ("kim.admin", "/web/sites", "desk", "en"),
}
DOCS_DARK = ("sent", "loop", "run")
EVERY = {
    "login": (None, "/web/login"),
    "home": ("dr.marlow", "/web/"),
    "home_engineer": ("sam.builds", "/web/"),
    "queue": ("lin.annotates", "/web/queue"),
    "rate": ("dr.marlow", "/web/rate"),
    "rate_own": ("dr.marlow", "/web/rate?own=true"),
    "compare": ("dr.marlow", "/web/compare"),
    "correct": ("dr.marlow", "/web/correct"),
    "history": ("dr.okoro", "/web/history"),
    "quarantine": ("dr.marlow", "/web/quarantine"),
    "dashboard": ("sam.builds", "/web/dashboard"),
    "audit": ("ada.audits", "/web/audit?check=true"),
    "users": ("kim.admin", "/web/users"),
    "settings": ("kim.admin", "/web/settings"),
    "guidelines": ("kim.admin", "/web/settings/guidelines"),
    "run": ("sam.builds", "/web/run"),
    "trust": ("sam.builds", "/web/trust"),
    "trust_judge": ("sam.builds", "/web/trust?judge=emergency"),
    "sent": ("dr.quist", "/web/queue"),  # what is shown after sending
    "home_admin": ("kim.admin", "/web/"),
    "home_auditor": ("ada.audits", "/web/"),
    "incidents": ("dr.marlow", "/web/incidents?state=all"),
    "incident": ("dr.marlow", "/web/incidents/{incident}"),
    "incident_engineer": ("sam.builds", "/web/incidents/{incident}"),
    "traces": ("sam.builds", "/web/traces"),
    "trace": ("dr.okoro", "/web/traces/{trace}"),
    "datasets": ("sam.builds", "/web/datasets"),
    "evaluations": ("sam.builds", "/web/evaluations"),
    "releases": ("sam.builds", "/web/releases"),
    "privacy": ("ada.audits", "/web/privacy"),
    "search": ("sam.builds", "/web/search?q=cycle"),
    "gate": ("dr.marlow", "/web/gate"),
    "registry": ("sam.builds", "/web/registry"),
    "deployments": ("sam.builds", "/web/deployments"),
    "experiments": ("sam.builds", "/web/experiments"),
    "codebook": ("dr.marlow", "/web/codebook"),
    "lineage": ("sam.builds", "/web/lineage"),
    "knowledge": ("dr.marlow", "/web/knowledge"),
    "chat": ("dr.marlow", "/web/chat"),
    "refused": ("dr.marlow", "/web/audit"),
    "account": ("dr.marlow", "/web/account"),
    "nothing": ("dr.marlow", "/web/rate?trace=none"),
    "empty": ("dr.okoro", "/web/compare"),
}
DARK = (
    "loop", "home_engineer", "traces", "trace", "gate", "datasets", "queue", "rate", "compare", "correct", "history",
    "quarantine", "dashboard", "home", "incident", "incidents", "users", "audit", "guidelines", "run", "trust", "sent",
)  # fmt: skip


def exchange(question: str, answer: str) -> Conversation:
    return Conversation(messages=(Message(role="user", content=question), Message(role="assistant", content=answer)))


def fill(store: Store) -> None:
    """Three weeks of a small clinic: raters who disagree, become strict or click through, and items to judge."""
    for name, role in PEOPLE.items():
        users.add_user(store, name, role, password=PASSWORD, actor="screens")
    ids = {name: users.get_user(store, name).user_id for name in PEOPLE}
    for name in ("dr.vale", "dr.tembo"):
        of_ward = users.add_user(store, name, "clinician", password=PASSWORD, actor="screens")
        sites.assign(store, of_ward, "ward-7", actor=ids["kim.admin"])
    dice, start = random.Random(7), utc_now() - timedelta(days=20)
    records: list[Any] = []
    for n in range(160):
        trace = Trace(
            session_id=f"s{n}",
            agent_name="triage",
            model_version="clinic@3",
            conversation=exchange(f"Question {n}?", f"Answer {n}."),
        )
        records.append(trace)
        truth = dice.choice((2, 3, 4, 4, 5))
        for name in ("dr.marlow", "dr.quist", "dr.okoro"):
            time = start + timedelta(hours=3 * n, minutes=dice.randint(0, 50))
            stars = {"dr.marlow": truth, "dr.okoro": dice.choice((1, 5))}.get(name, truth - 1 if n > 90 else truth)
            records.append(_rating(trace, ids[name], min(5, max(1, stars + dice.choice((0, 0, 0, 0, 0, 1)))), time))
        if n % 4 == 0:
            records.append(_preference(n, ids[RATERS[n // 4 % len(RATERS)]], time))
        if n % 9 == 0:
            records.append(_correction(n, ids["dr.quist"], time))
    crud.add(store, records, actor="screens")
    review_queue.add_items(store, list(_items()), actor="screens")


def fill_inspection(settings: Settings, store: Store) -> None:
    """Answers of an evaluation, and the sample of this week drawn from them; one is judged."""
    pairs = ((CHEST, REST), (DOSE, DOSE_BAD), (DOSE, DOSE_GOOD), (FEVER, FEVER_BAD), (CHEST, CALL))
    rows = [{"id": str(n), "question": question, "answer": answer} for n, (question, answer) in enumerate(pairs)]
    jsonl.write(settings.workspace.reports / "eval/predictions_clinic.jsonl", rows)
    marlow = users.get_user(store, "dr.marlow")
    inspection.draw_week(settings, store, actor=marlow.user_id)
    said = {"verdict": "dangerous", "score": "1", "faults": "emergency", "corrected_answer": "", "comment": ""}
    first = next(row for row in inspection.read_week(settings, marlow.name).answers if row.answer == REST)
    inspection.judge(settings, store, {"id": first.id, **said, "reviewer": marlow.name}, actor=marlow.user_id)


def _rating(trace: Trace, who: str, stars: int, time: Any) -> Feedback:
    return Feedback(
        session_id=trace.session_id, agent_name="triage", user_query="Question?", agent_response="Answer.", rating=stars,
        thumb="up" if stars > 3 else "down", trace_id=trace.trace_id, clinician_id=who, recorded_by=who, timestamp=time,
        consent=("training",),
    )  # fmt: skip


def _preference(n: int, who: str, time: Any) -> Preference:
    return Preference(
        prompt=f"Question {n}?", response_a="One.", response_b="Two.", preferred="a" if n % 8 < 6 else "b", shown_first="a",
        clinician_id=who, recorded_by=who, timestamp=time,
    )  # fmt: skip


def _correction(n: int, who: str, time: Any) -> Correction:
    return Correction(
        prompt=f"Question {n}?", original="One.", golden="Better.", clinician_id=who, recorded_by=who, timestamp=time
    )


def _items() -> Iterator[QueueItem]:
    def item(kind: str, question: str, *answers: str, **more: Any) -> QueueItem:
        turns = [Message(role="user", content=question)]
        turns = [Message.model_validate({"role": role, "content": text}) for role, text in more.pop("earlier", ())] + turns
        content = QueueContent(prompt=tuple(turns), answers=answers, contexts=more.pop("contexts", ()))
        return QueueItem.model_validate({"kind": kind, "content": content, "priority": 0.9, "raters": 20, **more})

    passages = ("Chest pain with a numb arm is an emergency until proven otherwise.",)
    shown = {"earlier": EARLIER, "contexts": passages, "stratum": "emergency"}
    yield item("rate", CHEST, THOUGHT + REST, **shown, reasons={"risk": 1.0, "disagreement": 0.6})
    yield item("rate", DOSE, DOSE_BAD, stratum="medication", reasons={"thumbs_down": 1.0, "risk": 0.7})
    yield item("compare", CHEST, REST, CALL, stratum="emergency", reasons={"uncertainty": 0.9})
    yield item("compare", DOSE, DOSE_BAD, DOSE_GOOD, stratum="medication", reasons={"explore": 1.0})
    yield item("correct", FEVER, FEVER_BAD, stratum="child", reasons={"thumbs_down": 1.0, "risk": 0.6})


class Person:
    """Somebody who fills in forms over HTTP, like a browser without scripts."""

    def __init__(self, address: str, name: str) -> None:
        self.http = httpx.Client(base_url=address, headers={"Origin": address}, follow_redirects=True)
        assert self.http.post("/web/login", data={"name": name, "password": PASSWORD}).url.path == "/web/"

    def send(self, page: str, **fields: str) -> None:
        form = re.search(
            r'<form method="post" action="(/web/(?:rate|compare|correct))".*?</form>', self.http.get(page).text, re.S
        )
        assert form, page
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form[0]))
        response = self.http.post(form[1], data={**hidden, **fields})
        assert "saved" in response.url.params, response.status_code


def send_feedback(store: Store, address: str) -> None:
    """What somebody sends through the pages, so that the history and the quarantine have something to show."""
    bad, good = (
        Trace(session_id="s", agent_name="triage", model_version="clinic@4", conversation=exchange(CHEST, text))
        for text in (REST, CALL)
    )
    crud.add(store, [bad, good], actor="screens")
    okoro = Person(address, "dr.okoro")
    okoro.send("/web/rate?own=true", question=HELD_EN, answer="Ask a doctor first.", rating="4", consent_training="yes")
    okoro.send("/web/rate?own=true", question=HELD_ZH, answer="请尽快就医。", rating="3", consent_training="yes")
    okoro.send(f"/web/rate?trace={good.trace_id}", thumb="up", rating="5", axis_safety="5", consent_training="yes")
    okoro.send(f"/web/compare?a={bad.trace_id}&b={good.trace_id}", better="first", comments="Sends the patient to help.")
    okoro.send(f"/web/correct?trace={bad.trace_id}", golden=CALL, reason="Misses a red flag.", consent_training="yes")
    critical = {"thumb": "down", "rating": "1", "critical": "yes", "sure": "yes", "comments": "Could kill."}
    okoro.send(f"/web/rate?trace={bad.trace_id}", **critical, consent_training="yes")
    sam, path = Person(address, "sam.builds"), incident_path(store)
    csrf = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', sam.http.get(path).text))["csrf"]
    note = "Rule 12 added: chest pain with a numb arm. The red-team case passes since clinic@5."
    assert sam.http.post(f"{path}/propose", data={"csrf": csrf, "note": note}).status_code == 200


def filled(store: Store, path: str) -> str:
    """The address of a page, with the id of an incident or of the trace behind it."""
    trace = list_traces(store, TraceFilter(judged="incident"), before=None, limit=1)
    return path.replace("/web/incidents/{incident}", incident_path(store)).replace("{trace}", trace[0].trace_id if trace else "")


def incident_path(store: Store) -> str:
    return f"/web/incidents/{list_incidents(store)[0].incident_id}"


def fill_loop(store: Store) -> None:
    """Two cycles: the model of the first is live, that of the second passed the gate and waits for a signature."""
    ids = {name: users.get_user(store, name).user_id for name in PEOPLE}
    for number, name in enumerate(("cycle1", "cycle2")):
        path = store.settings.home / f"data/feedback/{name}"
        catalog.register_file(store, "feedback", path, sha256_id(f"data {name}"), {"name": name}, actor=ids["sam.builds"])
        report = store.settings.workspace.reports / "eval" / f"{name}.json"
        fill_report(store, report, name, better=number > 0)
    live, candidate = (make_adapter(store, name) for name in ("cycle1-dpo", "cycle2-grpo"))
    refused = make_adapter(store, "cycle2-ppo")
    first = save_verdict(store, live, "embedded:tiny+cycle1-dpo", "pass")
    gates.sign(store, first, by=ids["dr.marlow"], approved=True, comment="Read all red-team answers.")
    save_verdict(store, refused, "embedded:tiny+cycle2-ppo", "fail")
    version = ModelVersion(
        model=store.settings.registry.model, version=1, artifact=live, name="cycle1-dpo", method="dpo", base="embedded:tiny",
        base_sha256=sha256_id("base"), inputs={"train": sha256_id("data cycle1")}, registered_by=ids["sam.builds"], gate=first,
    )  # fmt: skip
    registry.add_version(store, version, "models/lora/cycle1-dpo", actor=ids["sam.builds"])
    registry.change_alias(store, version.model, "champion", 1, action="promote", actor=ids["sam.builds"], reason="first release")
    route = Route(
        served_name="med-assistant-v1-1f2e3d4c", model=version.model, version=1, artifact=live, reason="champion of cycle1",
        changed_by=ids["sam.builds"],
    )  # fmt: skip
    add_route(store, route)
    save_verdict(store, candidate, "embedded:tiny+cycle2-grpo", "pass")
    plan = make_plan(
        PlanConfig(min_effect=0.1, spread=0.45, window_hours=0.0, min_users=20), name="cycle 2 against cycle 1",
        champion="med-assistant@1", challenger="med-assistant@2", by=ids["sam.builds"], site="main",
    )  # fmt: skip
    experiments.add_plan(store, plan, "5e" * 32)
    fill_cycle(store, ids["sam.builds"])


def save_verdict(store: Store, artifact: str, label: str, outcome: GateOutcome) -> str:
    share = Interval(mean=0.021, low=0.006, high=0.052, n=240)
    worse = Interval(mean=-0.084, low=-0.131, high=-0.037, n=180)
    checks = (
        GateCheck(name="triage/under_triage", outcome="pass", reason="Not worse than the margin.", metric="under_triage",
                  suite="triage", value=share, bound=0.05),
        GateCheck(name="language/zh", outcome=outcome, value=worse if outcome == "fail" else share, bound=-0.05,
                  reason="Answers in Chinese got worse." if outcome == "fail" else "Within the margin."),
        GateCheck(name="incidents", outcome="pass", reason="No safety incident is open."),
    )  # fmt: skip
    hashes = {name: sha256_id(name) for name in ("base", "baseline_artifact", "report", "config")}
    result = GateResult(
        artifact=artifact, weights=artifact, **hashes, label=label, baseline="embedded:tiny", outcome=outcome, checks=checks,
        needs_sign_offs=1,
    )  # fmt: skip
    return gates.save_gate(store, result, actor="screens")


def fill_report(store: Store, path: Path, name: str, *, better: bool) -> None:
    """An evaluation of a base and an adapter on two splits, with one regression."""
    names = ("embedded:tiny", f"embedded:tiny+{name}")

    def metrics(shift: float) -> dict[str, dict[str, Interval]]:
        values = {"reward": 0.52, "emergency_missed": 0.04, "language": 0.97}
        return {
            split: {metric: Interval(mean=value + shift, low=value + shift - 0.03, high=value + shift + 0.03, n=200)
                    for metric, value in values.items()}
            for split in ("test", "red")
        }  # fmt: skip

    worse = Difference(
        first=names[0], second=names[1], split="red", metric="language", separated=True, verdict="worse", stratum="zh",
        difference=Interval(mean=-0.06, low=-0.1, high=-0.02, n=90),
    )  # fmt: skip
    report = EvalReport(
        name=name, results=tuple(ModelResult(label=label, metrics=metrics(0.05 * n)) for n, label in enumerate(names)),
        differences=() if better else (worse,), inputs={"test": sha256_id("test")}, rules={"mix": "1"}, config={},
        timestamp=utc_now(),
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.canonical_json() + "\n", encoding="utf-8")
    catalog.register_file(store, "evaluation", path, report.content_id(), {"name": name, "inputs": {}}, actor="screens")


def fill_cycle(store: Store, by: str) -> None:
    steps = "data,train-grpo,evaluate,gate,sign-off,register,promote"
    same: dict[str, Any] = {"cycle": "cycle2", "inputs": sha256_id("inputs"), "decided_by": by}
    add_cycle_event(store, CycleEvent(**same, step="plan", event="done", outputs={"steps": steps}))
    for step in ("data", "train-grpo", "evaluate", "gate"):
        add_cycle_event(store, CycleEvent(**same, step=step, event="done"))
    reason = "The gate's verdict has 1 of 2 sign-offs."
    add_cycle_event(store, CycleEvent(**same, step="sign-off", event="waiting", reason=reason, outputs={"command": "gate show"}))


def fill_run(settings: Settings) -> None:
    """A training run whose reward rises while the panel raises alarms."""
    row = JobRow(job_id="train", stage="IRS", state="queued", submitted=utc_now(), changed=utc_now())
    job_id = queue.put(TrainRequest(stage="IRS"), row, settings)
    alarms = [
        "now: answers are 80% longer (41 to 74 words).",
        "now: rel alone contributes 71% of the reward (40% in the first round).",
    ]
    lines: list[dict[str, Any]] = []
    for n in range(9):
        weights = {"rel": 1 + n / 40, "faith": 1 - n / 50, "conc": 0.5}
        lines.append({"iter": n, "phase": "METRICS", "avg_reward": 0.2 + n / 20, "weights": weights, "extra": {}})
        if n % 4 == 0:
            reward, parts = 0.2 + n / 40, {"rel": 0.3 + n / 20, "faith": 0.4, "conc": 0.3 - n / 60, "risk": 0.1 - n / 100}
            held_out = {"parts": parts, "reward_interval": [round(reward - 0.06, 3), round(reward + 0.06, 3)]}
            extra = {"alarms": alarms if n else [], "held_out": held_out, "kl": 0.2 * n}
            lines.append({"iter": n, "phase": "HELD_OUT", "avg_reward": reward, "extra": extra})
    text = "".join(json.dumps({"ts": "2026-02-03T12:00:00Z", **line}) + "\n" for line in lines)
    (settings.workspace.jobs / job_id / "metrics.jsonl").write_text(text)


def fill_trust(settings: Settings) -> None:
    """A card of the trust meter on the bundled cases, as if clinicians had labelled them, and a judge that drifts."""
    sources = {"bundled: triage": "ward labels", "bundled: faults": "inspection", "bundled: pairs": "use: votes"}
    specialties = ("cardiology", "paediatrics", "general practice")
    cases = [
        case.model_copy(update={"source": sources[case.source or ""], "specialty": specialties[n % 3]})
        for n, case in enumerate(bundled_cases())
    ]
    left_out = {"no_consent": 12, "tie": 3}
    card, _ = trust.validate(settings, cases, build_mix(MixConfig()), config=TrustConfig(), left_out=left_out)
    values: dict[str, Any] = {"judge": "overtriage", "quantity": "firing", "before": 0.08, "after": 0.31, "n": 480}
    write_standing(settings.workspace, [make_alert("judge", "judge_shift", reward=card.reward_version, **values)])
    write_record(settings, card.reward_version, DriftRecord(exchanges=480))


def send_form(page: Page) -> None:
    """Judge what the page shows, and stop at what it says afterwards."""
    if page.query_selector("#f-golden"):
        page.fill("#f-golden", CALL)
    else:
        page.keyboard.press("a" if page.query_selector(".pair") else "4")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("[data-undo]")


@contextlib.contextmanager
def served() -> Iterator[tuple[str, Store]]:
    """The address and the store of a server on a temporary workspace."""
    with tempfile.TemporaryDirectory(prefix="medloop-screens-") as folder:
        home = Path(folder) / "clinic"
        init_workspace(home)
        settings = Settings(home=home, device="cpu", threads=1, offline=True)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(settings, supervise=False), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        with open_store(settings) as store:
            fill(store)
            fill_run(settings)
            fill_trust(settings)
            fill_loop(store)
            fill_inspection(settings, store)
            thread.start()
            while not server.started:
                time.sleep(0.02)
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            send_feedback(store, address)
            yield address, store
            server.should_exit = True
            thread.join(timeout=30)


def open_page(
    browser: Browser, address: str, store: Store, who: str | None, size: str, language: str, *, dark: bool = False
) -> Page:
    width, height = SIZES[size]
    context = browser.new_context(
        base_url=address, viewport={"width": width, "height": height}, locale="zh-CN" if language == "zh" else "en-GB",
        has_touch=size == "phone", color_scheme="dark" if dark else "light", reduced_motion="reduce",
    )  # fmt: skip
    if who is not None:
        user = users.get_user(store, who)
        token = users.open_session(store, user, actor=user.user_id)
        context.add_cookies([{"name": "medloop_session", "value": token, "url": address, "httpOnly": True, "sameSite": "Strict"}])
    return context.new_page()


def shrink(png: bytes) -> bytes:
    """The picture with as many colours as fit into MAX_BYTES; a page has few."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for colours in (96, 64, 32, 16):
        out = io.BytesIO()
        picture.quantize(colours, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
        if len(out.getvalue()) <= MAX_BYTES:
            return out.getvalue()
    raise SystemExit(f"A picture of {picture.size} does not fit into {MAX_BYTES:,} bytes")


def _clip(page: Page) -> FloatRect:
    """The top of the page, as high as a picture in the docs may be."""
    width, height = page.evaluate("[innerWidth, document.documentElement.scrollHeight]")
    return {"x": 0, "y": 0, "width": width, "height": min(height, MAX_HEIGHT)}


def docs(browser: Browser, address: str, store: Store, out: Path, only: list[str]) -> None:
    total = 0
    for name, (who, path, size, language) in DOCS.items():
        if only and name not in only:
            continue
        page = open_page(browser, address, store, who, size, language, dark=name in DOCS_DARK)
        page.goto(filled(store, path))
        if name == "sent":
            send_form(page)
        # A page for judging keeps its button in view, so the screen is the picture.
        body = shrink(
            page.screenshot() if page.query_selector("main.wide") else page.screenshot(full_page=True, clip=_clip(page))
        )
        (out / f"{name}.png").write_bytes(body)
        total += len(body)
        sys.stdout.write(f"{name}.png  {len(body):,}\n")
        page.context.close()
    if total > MAX_TOTAL_BYTES:
        raise SystemExit(f"{total:,} bytes in all, more than {MAX_TOTAL_BYTES:,}")


def every(browser: Browser, address: str, store: Store, out: Path, only: list[str]) -> None:
    for language in ("en", "zh"):
        for size in SIZES:
            for name, (who, path) in EVERY.items():
                if only and name not in only:
                    continue
                for dark in (False, True) if name in DARK else (False,):
                    page = open_page(browser, address, store, who, size, language, dark=dark)
                    page.goto(filled(store, path))
                    if name == "sent":
                        send_form(page)
                    whole = page.query_selector("main.wide") is None
                    page.screenshot(path=out / f"{name}_{size}_{language}{'_dark' if dark else ''}.png", full_page=whole)
                    page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=SCREENS, help="folder for the pictures (default: docs/screens)")
    parser.add_argument("--all", action="store_true", help="every page in every form, in full length")
    parser.add_argument("--only", nargs="*", default=[], metavar="PAGE", help="these pages alone")
    args = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("No Chromium found: put 'chromium' into PATH, or its path into the variable CHROMIUM.")
    if not subprocess.run(["fc-list", ":lang=zh"], capture_output=True, check=True).stdout:
        raise SystemExit("No Chinese font found, so Chinese would be drawn as boxes. Install one, for example fonts-wqy-zenhei.")
    args.out.mkdir(parents=True, exist_ok=True)
    with served() as (address, store), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        if args.all:
            every(browser, address, store, args.out, args.only)
        else:
            docs(browser, address, store, args.out, args.only)
        browser.close()


if __name__ == "__main__":
    main()
