"""The part of `medloop demo` that needs people: a real server, a real client, and three clinicians who do not exist.

They judge answers that RL has sampled, by the rewards of the rules, so that the demo needs nobody. Two questions get an
invented name and number, to be seen again as placeholders. The key of each request is made of its content: a second demo stores
nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
PAIRS, ALONE = 6, 6  # questions with a better and a worse answer, and with one answer
CLINICIANS = ("dr-adams", "dr-berg", "dr-chen")
AGENT = "demo-agent"
PATIENTS = {"en": "My name is {}, MRN {}. ", "zh": "我叫{}，身份证号{}。"}
INVENTED = {"en": ("Daniel Okafor", "4471902"), "zh": ("李伟", "11010519491231002X")}
ADVICE = {"en": " Call us tomorrow if it does not get better.", "zh": "如果明天没有好转，请再联系我们。"}
WHY = {"en": "Dangerous dose, and no word about when to see a doctor.", "zh": "剂量危险，也没有说什么时候要看医生。"}


@dataclass(frozen=True)
class Asked:
    """A question with its best answer and, where there is one, an answer that the rules like less."""

    question: str
    good: str
    bad: str | None = None

    @property
    def language(self) -> str:
        return "zh" if re.search(r"[\u4e00-\u9fff]", self.question) else "en"


@dataclass
class Day:
    """What was sent, to be sent once more; and what came back."""

    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    receipts: dict[str, list[Receipt]] = field(default_factory=dict)

    def say(self, client: Client, kind: str, **said: Any) -> Receipt:
        said["idempotency_key"] = key_of(kind, said)
        self.sent.append((kind, said))
        found: Receipt = getattr(client, kind)(**said)
        self.receipts.setdefault(kind, []).append(found)
        return found

    @property
    def stored(self) -> int:
        return sum(not one.repeated for found in self.receipts.values() for one in found)


def key_of(kind: str, said: dict[str, Any]) -> str:
    return f"demo/{kind}/{hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:24]}"


def pick(rows: Sequence[dict[str, Any]]) -> list[Asked]:
    """Questions with the widest gap between two answers, then some with one answer; one of each language gets a name."""
    by_question: dict[str, dict[str, float]] = {}
    for row in rows:
        by_question.setdefault(row["question"], {})[row["answer"]] = row["reward"]
    ranked = [(question, sorted(answers, key=answers.__getitem__, reverse=True)) for question, answers in by_question.items()]
    gaps = [by_question[question][order[0]] - by_question[question][order[-1]] for question, order in ranked]
    widest = sorted(range(len(ranked)), key=lambda at: -gaps[at])
    pairs = [Asked(ranked[at][0], ranked[at][1][0], ranked[at][1][-1]) for at in widest[:PAIRS] if gaps[at] > 0]
    alone = [Asked(ranked[at][0], ranked[at][1][0]) for at in widest[len(pairs) :][-ALONE:]]
    for language in PATIENTS:
        at = next((at for at, one in enumerate(pairs) if one.language == language), None)
        if at is not None:
            pairs[at] = Asked(planted(language) + pairs[at].question, pairs[at].good, pairs[at].bad)
    return [*pairs, *alone]


def planted(language: str) -> str:
    return PATIENTS[language].format(*INVENTED[language])


def people(folder: Path) -> None:
    """Serve, log, rate, choose, correct, flag, send it all again; then end the server and its key."""
    asked = pick(list(jsonl.read(folder / MODEL / "samples.jsonl")))
    with serving(folder) as address, key(folder) as text, Client(address, text) as client:
        day = judge(client, asked)
        tell(day, [getattr(client, kind)(**said) for kind, said in day.sent])
        _numbers(address, text)
    ui.say("The server has ended; 'medloop api serve' starts it again, with its pages.")


def environ() -> dict[str, str]:
    """Settings in the environment stay out: MEDLOOP_HOME would send the demo into somebody's real workspace."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MEDLOOP_")}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a server of its own, which ends with the block; its words are shown as they come."""
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
        if found := re.match(r"Serving (http://[\d.:]+);", line):
            return found[1]
    raise typer.Exit(process.wait() or 1)  # it has said why


@contextmanager
def key(folder: Path) -> Iterator[str]:
    """A key of a user of its own, withdrawn at the end."""
    with open_store(resolve({"home": folder.absolute()}, environ={}).settings) as store:
        known = [one for one in users.list_users(store) if one.name == AGENT]
        user = known[0] if known else users.add_user(store, AGENT, "engineer", actor=actor())
        expires = utc_now() + timedelta(hours=1)
        text = users.new_key(store, user, scopes=("feedback:write", "metrics"), expires=expires, actor=actor())
        try:
            yield text
        finally:
            users.revoke_key(store, text.split("_")[1], actor=actor())


def judge(client: Client, asked: Sequence[Asked]) -> Day:
    """Each answer is logged and rated by two of three; where there are two, one is chosen and the other corrected."""
    day = Day()
    for number, one in enumerate(asked):
        for answer in filter(None, (one.good, one.bad)):
            trace = _log(client, number, one.question, answer)
            for turn in range(2):
                _rate(client, day, trace, answer == one.good, CLINICIANS[(number + turn) % 3])
        if one.bad is None:
            continue
        day.say(
            client, "preference", prompt=one.question, response_a=one.good, response_b=one.bad, preferred="a",
            shown_first="ab"[number % 2], clinician_id=CLINICIANS[number % 3], consent=["training"],
        )  # fmt: skip
        day.say(
            client, "correction", trace_id=trace, golden=one.good + ADVICE[one.language], reason=WHY[one.language],
            clinician_id=CLINICIANS[number % 3], consent=["training"],
        )  # fmt: skip
        if number == 0:
            day.say(client, "feedback", trace_id=trace, critical=True, clinician_id=CLINICIANS[2], consent=["training"])
    return day


def _log(client: Client, number: int, question: str, answer: str) -> str:
    talk = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    said: dict[str, Any] = {"session_id": f"demo-{number}", "agent_name": "demo", "model_version": MODEL, "messages": talk}
    found: str = client.log_trace(**said, idempotency_key=key_of("trace", said))
    return found


def _rate(client: Client, day: Day, trace: str, good: bool, who: str) -> None:
    """The last of the clinicians gives a star less, so that there is something to agree on."""
    stars, thumb = (5, "up") if good else (2, "down")
    strict = int(who == CLINICIANS[-1])
    day.say(
        client, "feedback", trace_id=trace, rating=stars - strict, thumb=thumb, clinician_id=who, consent=["training"],
        axes={"safety": 5 if good else 1, "clarity": 4 if good else 3},
    )  # fmt: skip


def tell(day: Day, again: Sequence[Receipt]) -> None:
    """What was sent, in numbers; a second demo says that it was all there."""
    ratings = [said for kind, said in day.sent if kind == "feedback" and "thumb" in said]
    up = sum(said["thumb"] == "up" for said in ratings)
    flags = [one.incident_id for one in day.receipts.get("feedback", []) if one.incident_id]
    ui.say(f"Sent with medloop.client, by a key of the user '{AGENT}' that ends with this step:")
    for count, what in (
        (len({said["trace_id"] for said in ratings}), f"answers of {MODEL}, each logged as a trace"),
        (
            len(ratings),
            f"ratings by {len(CLINICIANS)} invented clinicians, who judge as the rules do: {up} up, {len(ratings) - up} down",
        ),
        (len(day.receipts.get("preference", [])), "choices between two answers, with the order they were shown in"),
        (len(day.receipts.get("correction", [])), "corrections: the answer that should have been given"),
    ):
        ui.say(f"{count:>5}  {what}")
    for incident in flags:
        ui.say(f"    1  critical flag: incident {incident} is open, its question is a red-team case")
    ui.say(f"{day.stored} records are new, {len(day.sent) - day.stored} were stored by an earlier demo.")
    twice = sum(one.repeated for one in again)
    ui.say(f"All {len(again)} requests sent once more with the same keys: {twice} known, {len(again) - twice} stored twice.")


def _numbers(address: str, text: str) -> None:

    page = httpx.get(f"{address}/metrics", headers={"Authorization": f"Bearer {text}"}, trust_env=False).raise_for_status().text
    ui.say("GET /metrics")
    for line in page.splitlines():
        if line.startswith(("medloop_records_total", "medloop_ingest_replays_total", "medloop_incidents_open")):
            ui.say(f"  {line}")


def placeholders(folder: Path) -> None:
    """What was planted, and what the dataset has of it."""
    rows = [row for name in ("sft_train.jsonl", "sft_test.jsonl") for row in jsonl.read(folder / DATASET / name)]
    texts = [message["content"] for row in rows for message in row["conversation"]["messages"] if message["role"] == "user"]
    for language, words in PATIENTS.items():
        scrubbed = re.compile(re.escape(words).replace(re.escape("{}"), r"\[[A-Z]+_\d+\]"))
        found = next((match[0] for text in texts if (match := scrubbed.match(text))), None)
        if found is not None:
            ui.say(f"sent         {planted(language)}…\nlearnt from  {found}…")
