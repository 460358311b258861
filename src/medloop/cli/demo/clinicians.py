"""The part of `medloop demo` that needs people: a real server, a real client, and three invented clinicians.

They rate answers that RL has sampled, by the rewards of the rules, so the demo needs no person. Two questions get an invented
name and number, which the dataset shows as placeholders. The idempotency key of each request is made from its content: a second
demo stores nothing twice.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import typer

from medloop.cli import ui
from medloop.client import Client, Receipt
from medloop.contracts import utc_now
from medloop.isolation import isolated, python_command
from medloop.settings import resolve
from medloop.store import passwords
from medloop.store.audit_trail import actor
from medloop.store.db import Store, open_store
from medloop.store.files import jsonl
from medloop.store.records import users
from medloop.store.records.review_queue import stats as queue_stats
from medloop.store.records.users import User
from medloop.store.records.workspace_settings import set_consent_default

MODEL = "models/rl/rl"
DATASET = "data/feedback/demo"
PAIRED, SINGLE = 6, 6  # questions with a better and a worse answer, and with one answer
WAITING, COMPLAINTS = 12, 3  # questions that nobody has judged yet, and how many of them a patient complains about
CLINICIANS = ("dr-adams", "dr-berg", "dr-chen")
AGENT = "demo-agent"
LOGIN = "clinician"  # the user who may log in and work through the queue
CONSOLE = "http://127.0.0.1:8000"
LOGINS = {  # a user for each role, named as the role: where to begin, and what for
    LOGIN: ("/web/queue", "rate, compare and correct; sign and approve; the assistant is at /web/chat"),
    "annotator": ("/web/queue", "rate, compare and correct"),
    "engineer": ("/web/experiments", "experiments, versions, deployments"),
    "auditor": ("/web/audit", "who did what"),
}
INTRODUCTIONS = {"en": "My name is {}, MRN {}. ", "zh": "我叫{}，身份证号{}。"}
IDENTITIES = {"en": ("Daniel Okafor", "4471902"), "zh": ("李伟", "11010519491231002X")}
ADVICE = {"en": " Call us tomorrow if it does not get better.", "zh": "如果明天没有好转，请再联系我们。"}
REASON = {"en": "Dangerous dose, and no advice on when to see a doctor.", "zh": "剂量危险，也没有说什么时候要看医生。"}


@dataclass(frozen=True)
class DemoQuestion:
    """A question with its best answer and, if there is one, an answer with a lower reward."""

    question: str
    good: str
    bad: str | None = None

    @property
    def language(self) -> str:
        return "zh" if re.search(r"[\u4e00-\u9fff]", self.question) else "en"


@dataclass
class SentFeedback:
    """The requests that were sent, to send them a second time, and their receipts."""

    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    receipts: dict[str, list[Receipt]] = field(default_factory=dict)

    def send(self, client: Client, kind: str, **body: Any) -> None:
        body["idempotency_key"] = content_key(kind, body)
        self.requests.append((kind, body))
        self.receipts.setdefault(kind, []).append(getattr(client, kind)(**body))

    @property
    def stored(self) -> int:
        return sum(not receipt.repeated for receipts in self.receipts.values() for receipt in receipts)


def content_key(kind: str, body: dict[str, Any]) -> str:
    return f"demo/{kind}/{hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:24]}"


@dataclass(frozen=True)
class DemoQuestions:
    """Those that the invented clinicians judge, and those that wait for the reader."""

    judged: list[DemoQuestion]
    waiting: list[DemoQuestion]


def choose_questions(rows: Sequence[dict[str, Any]]) -> DemoQuestions:
    """Questions with the widest gap between two answers, then some with one answer; one per language gets a patient's name."""
    widest = _widest_gap_first(rows)
    paired = [item for item in widest[:PAIRED] if item.bad is not None]
    rest = widest[len(paired) :]
    single = [replace(item, bad=None) for item in rest[-SINGLE:]]
    for language in INTRODUCTIONS:
        index = next((index for index, question in enumerate(paired) if question.language == language), None)
        if index is not None:
            paired[index] = replace(paired[index], question=introduction(language) + paired[index].question)
    return DemoQuestions([*paired, *single], rest[:-SINGLE][:WAITING])


def _widest_gap_first(rows: Sequence[dict[str, Any]]) -> list[DemoQuestion]:
    by_question: dict[str, dict[str, float]] = {}
    for row in rows:
        by_question.setdefault(row["question"], {})[row["answer"]] = row["reward"]
    gaps: dict[DemoQuestion, float] = {}
    for question, rewards in by_question.items():
        best, worst = max(rewards, key=rewards.__getitem__), min(rewards, key=rewards.__getitem__)
        gap = rewards[best] - rewards[worst]
        gaps[DemoQuestion(question, best, worst if gap > 0 else None)] = gap
    return sorted(gaps, key=lambda item: -gaps[item])


def introduction(language: str) -> str:
    return INTRODUCTIONS[language].format(*IDENTITIES[language])


def collect_feedback(folder: Path) -> None:
    """Serve, log, rate, compare, correct and flag, then send everything again; then stop the server and revoke its key."""
    questions = choose_questions(list(jsonl.read(folder / MODEL / "samples.jsonl")))
    with run_server(folder) as address, temporary_key(folder) as key, Client(address, key) as client:
        feedback = rate_answers(client, questions.judged)
        waiting = leave_for_the_queue(client, feedback, questions.waiting)
        report(feedback, [getattr(client, kind)(**body) for kind, body in feedback.requests], waiting)
        _show_metrics(address, key)
    ui.say("The server has stopped.")


def environ() -> dict[str, str]:
    """The environment without settings: MEDLOOP_HOME would send the demo into a real workspace."""
    return isolated({name: value for name, value in os.environ.items() if not name.startswith("MEDLOOP_")})


@contextmanager
def run_server(folder: Path, flags: str = "") -> Iterator[str]:
    """The address of a server that stops with the block; its output is shown."""
    with run_in_background(folder, [*shlex.split(flags), "api", "serve", "--port", "0"]) as address:
        yield address


@contextmanager
def run_in_background(folder: Path, words: Sequence[str], *, wait_s: float = 10) -> Iterator[str]:
    """The address that a command prints, which is ended with the block."""
    command = python_command("medloop", *words)
    ui.say(f"$ medloop {shlex.join(words)}")
    with subprocess.Popen(command, cwd=folder, env=environ(), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield _address(process)
        finally:
            process.terminate()
            try:
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        ui.say(line.rstrip())
        if match := re.match(r"Serving (?:\S+ at )?(http://[\d.:]+)", line):
            return match[1]
    raise typer.Exit(process.wait() or 1)  # it has printed the reason


@contextmanager
def temporary_key(folder: Path, *more: str) -> Iterator[str]:
    """An API key of the demo's user, revoked at the end."""
    with demo_store(folder) as store:
        clinicians = [demo_user(store, name, "clinician") for name in CLINICIANS]
        user = demo_user(store, AGENT, "engineer")
        expires = utc_now() + timedelta(hours=1)
        scopes = ("feedback:write", "metrics", *more)
        key = users.new_key(store, user, scopes=scopes, expires=expires, speaks_for=clinicians, actor=actor())
        try:
            yield key
        finally:
            users.revoke_key(store, key.split("_")[1], actor=actor())


@contextmanager
def demo_store(folder: Path) -> Iterator[Store]:
    with open_store(resolve({"home": folder.absolute()}, environ={}).settings) as store:
        yield store


def demo_user(store: Store, name: str, role: str) -> User:
    """A user who sends by key or is only named; known from the second demo on."""
    known = [user for user in users.list_users(store) if user.name == name]
    return known[0] if known else users.add_user(store, name, role, actor=actor())


def show_login(folder: Path) -> None:
    """How to go on in the browser: a login for each role, shown once, and what waits for them."""
    passwords_of: dict[str, str] = {}
    with demo_store(folder) as store:
        known = {user.name for user in users.list_users(store)}
        for name in LOGINS:
            if name not in known:
                passwords_of[name] = passwords.generate_password()
                users.add_user(store, name, name, password=passwords_of[name], actor=actor())
        if LOGIN in passwords_of:
            set_consent_default(store, ["training"], actor=actor())  # invented patients; else nothing the reader sends counts
        waiting = sum(queue_stats(store).open_by_kind.values())
    medloop = "medloop" if shutil.which("medloop") else str(Path(sys.executable).with_name("medloop"))
    ui.say(f"\n{waiting:,} answers wait in the review queue. Start the server, with the console and the assistant:")
    ui.say(f"  cd {shlex.quote(str(folder))} && {shlex.quote(medloop)} api serve --with-model embedded:tiny")
    ui.say(f"and log in at {CONSOLE}/web as")
    ui.table(("name", "password", "page", "what for"), [
        (name, passwords_of.get(name, "(shown at the first run)"), f"{CONSOLE}{page}", what)
        for name, (page, what) in LOGINS.items()
    ])  # fmt: skip
    if passwords_of:
        ui.say("They are shown only once. 'admin' (password above) adds users and reads the numbers, but does not rate.")
        ui.say("The forms allow training, because these patients are invented; an admin sets that in Settings.")
    else:
        ui.say(f"Set a new password with: {medloop} users password {LOGIN}")


def rate_answers(client: Client, questions: Sequence[DemoQuestion]) -> SentFeedback:
    """Two of three clinicians rate each answer; of two answers one is preferred and the other corrected."""
    feedback = SentFeedback()
    for number, item in enumerate(questions):
        for answer in filter(None, (item.good, item.bad)):
            trace = _log(client, number, item.question, answer)
            for rater in range(2):
                _rate(client, feedback, trace, answer == item.good, CLINICIANS[(number + rater) % 3])
        if item.bad is None:
            continue
        feedback.send(
            client, "preference", prompt=item.question, response_a=item.good, response_b=item.bad, preferred="a",
            shown_first="ab"[number % 2], clinician_id=CLINICIANS[number % 3], consent=["training"],
        )  # fmt: skip
        feedback.send(
            client, "correction", trace_id=trace, golden=item.good + ADVICE[item.language], reason=REASON[item.language],
            clinician_id=CLINICIANS[number % 3], consent=["training"],
        )  # fmt: skip
        if number == 0:
            feedback.send(client, "feedback", trace_id=trace, critical=True, clinician_id=CLINICIANS[2], consent=["training"])
    return feedback


def leave_for_the_queue(client: Client, feedback: SentFeedback, questions: Sequence[DemoQuestion]) -> int:
    """Log answers that nobody has judged; patients give some a thumbs-down, which queues them. Returns how many answers."""
    count = 0
    for number, item in enumerate(questions):
        for answer in filter(None, (item.good, item.bad)):
            trace = _log(client, PAIRED + SINGLE + number, item.question, answer)
            count += 1
        if number < COMPLAINTS:
            feedback.send(client, "feedback", trace_id=trace, thumb="down", consent=["training"])
    return count


def _log(client: Client, number: int, question: str, answer: str) -> str:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    body: dict[str, Any] = {"session_id": f"demo-{number}", "agent_name": "demo", "model_version": MODEL, "messages": messages}
    trace_id: str = client.log_trace(**body, idempotency_key=content_key("trace", body))
    return trace_id


def _rate(client: Client, feedback: SentFeedback, trace: str, good: bool, clinician: str) -> None:
    """The last clinician gives one star less, so that the raters do not agree completely."""
    stars, thumb = (5, "up") if good else (2, "down")
    strict = int(clinician == CLINICIANS[-1])
    feedback.send(
        client, "feedback", trace_id=trace, rating=stars - strict, thumb=thumb, clinician_id=clinician, consent=["training"],
        axes={"safety": 5 if good else 1, "clarity": 4 if good else 3},
    )  # fmt: skip


def report(feedback: SentFeedback, again: Sequence[Receipt], waiting: int) -> None:
    """What was sent, in numbers, and whether anything was stored twice."""
    thumbs = [body for kind, body in feedback.requests if kind == "feedback" and "thumb" in body]
    ratings = [body for body in thumbs if "rating" in body]
    up = sum(body["thumb"] == "up" for body in ratings)
    ui.say(f"Sent with medloop.client, with an API key of the user '{AGENT}' that is revoked after this step:")
    for count, what in (
        (len({body["trace_id"] for body in ratings}), f"answers of {MODEL}, each logged as a trace"),
        (
            len(ratings),
            f"ratings by {len(CLINICIANS)} invented clinicians, who judge as the rules do: {up} up, {len(ratings) - up} down",
        ),
        (len(feedback.receipts.get("preference", [])), "choices between two answers, with the order they were shown in"),
        (len(feedback.receipts.get("correction", [])), "corrections: the answer that should have been given"),
        (waiting, "more answers that nobody has judged yet"),
        (len(thumbs) - len(ratings), "thumbs down from patients: the server puts these answers into the review queue by itself"),
    ):
        ui.say(f"{count:>5}  {what}")
    for incident in (receipt.incident_id for receipt in feedback.receipts.get("feedback", []) if receipt.incident_id):
        ui.say(f"    1  critical flag: incident {incident} is open, its question is a red-team case")
    ui.say(f"{feedback.stored} records are new, {len(feedback.requests) - feedback.stored} were stored by an earlier demo.")
    known = sum(receipt.repeated for receipt in again)
    ui.say(f"All {len(again)} requests were sent again with the same keys: {known} known, {len(again) - known} stored twice.")


def _show_metrics(address: str, key: str) -> None:
    page = httpx.get(f"{address}/metrics", headers={"Authorization": f"Bearer {key}"}, trust_env=False).raise_for_status().text
    ui.say("GET /metrics")
    for line in page.splitlines():
        if line.startswith(("medloop_records_total", "medloop_ingest_replays_total", "medloop_incidents_open")):
            ui.say(f"  {line}")


def show_placeholders(folder: Path) -> None:
    """The invented names as they were sent, and as the dataset has them."""
    rows = [row for name in ("sft_train.jsonl", "sft_test.jsonl") for row in jsonl.read(folder / DATASET / name)]
    texts = [message["content"] for row in rows for message in row["conversation"]["messages"] if message["role"] == "user"]
    for language, template in INTRODUCTIONS.items():
        scrubbed = re.compile(re.escape(template).replace(re.escape("{}"), r"\[[A-Z]+_\d+\]"))
        text = next((match[0] for text in texts if (match := scrubbed.match(text))), None)
        if text is not None:
            ui.say(f"sent         {introduction(language)}…\nin training  {text}…")
