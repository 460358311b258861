"""The part of `medloop demo` that needs people: a real server, a real client, and three invented clinicians.

They rate answers that RL has sampled, by the rewards of the rules, so the demo needs no person. Two questions get an invented
name and number, which the dataset shows as placeholders. The idempotency key of each request is made from its content: a second
demo stores nothing twice.
"""

import hashlib
import json
import os
import re
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
from medloop.settings import resolve
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.records import users

MODEL = "models/rl/rl"
DATASET = "data/feedback/demo"
PAIRED, SINGLE = 6, 6  # questions with a better and a worse answer, and with one answer
CLINICIANS = ("dr-adams", "dr-berg", "dr-chen")
AGENT = "demo-agent"
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


def choose_questions(rows: Sequence[dict[str, Any]]) -> list[DemoQuestion]:
    """Questions with the widest gap between two answers, then some with one answer; one per language gets a patient's name."""
    by_question: dict[str, dict[str, float]] = {}
    for row in rows:
        by_question.setdefault(row["question"], {})[row["answer"]] = row["reward"]
    ranked = [(question, sorted(answers, key=answers.__getitem__, reverse=True)) for question, answers in by_question.items()]
    gaps = [by_question[question][order[0]] - by_question[question][order[-1]] for question, order in ranked]
    widest = sorted(range(len(ranked)), key=lambda index: -gaps[index])
    paired = [DemoQuestion(ranked[i][0], ranked[i][1][0], ranked[i][1][-1]) for i in widest[:PAIRED] if gaps[i] > 0]
    single = [DemoQuestion(ranked[i][0], ranked[i][1][0]) for i in widest[len(paired) :][-SINGLE:]]
    for language in INTRODUCTIONS:
        index = next((index for index, question in enumerate(paired) if question.language == language), None)
        if index is not None:
            paired[index] = replace(paired[index], question=introduction(language) + paired[index].question)
    return [*paired, *single]


def introduction(language: str) -> str:
    return INTRODUCTIONS[language].format(*IDENTITIES[language])


def collect_feedback(folder: Path) -> None:
    """Serve, log, rate, compare, correct and flag, then send everything again; then stop the server and revoke its key."""
    questions = choose_questions(list(jsonl.read(folder / MODEL / "samples.jsonl")))
    with run_server(folder) as address, temporary_key(folder) as key, Client(address, key) as client:
        feedback = rate_answers(client, questions)
        report(feedback, [getattr(client, kind)(**body) for kind, body in feedback.requests])
        _show_metrics(address, key)
    ui.say("The server has stopped; 'medloop api serve' starts it again, with its pages.")


def environ() -> dict[str, str]:
    """The environment without settings: MEDLOOP_HOME would send the demo into a real workspace."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MEDLOOP_")}


@contextmanager
def run_server(folder: Path) -> Iterator[str]:
    """The address of a server that stops with the block; its output is shown."""
    command = [sys.executable, "-m", "medloop", "api", "serve", "--port", "0"]
    ui.say("$ medloop api serve --port 0")
    with subprocess.Popen(command, cwd=folder, env=environ(), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield _address(process)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        ui.say(line.rstrip())
        if match := re.match(r"Serving (http://[\d.:]+);", line):
            return match[1]
    raise typer.Exit(process.wait() or 1)  # it has printed the reason


@contextmanager
def temporary_key(folder: Path) -> Iterator[str]:
    """An API key of the demo's user, revoked at the end."""
    with open_store(resolve({"home": folder.absolute()}, environ={}).settings) as store:
        known = [user for user in users.list_users(store) if user.name == AGENT]
        user = known[0] if known else users.add_user(store, AGENT, "engineer", actor=actor())
        expires = utc_now() + timedelta(hours=1)
        key = users.new_key(store, user, scopes=("feedback:write", "metrics"), expires=expires, actor=actor())
        try:
            yield key
        finally:
            users.revoke_key(store, key.split("_")[1], actor=actor())


def rate_answers(client: Client, questions: Sequence[DemoQuestion]) -> SentFeedback:
    """Two of three clinicians rate each answer; of two answers one is preferred and the other corrected."""
    feedback = SentFeedback()
    for number, item in enumerate(questions):
        for answer in filter(None, (item.good, item.bad)):
            trace = _log(client, number, item.question, answer)
            for turn in range(2):
                _rate(client, feedback, trace, answer == item.good, CLINICIANS[(number + turn) % 3])
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


def report(feedback: SentFeedback, again: Sequence[Receipt]) -> None:
    """What was sent, in numbers, and whether anything was stored twice."""
    ratings = [body for kind, body in feedback.requests if kind == "feedback" and "thumb" in body]
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
