"""The part of `medloop demo` that serves: the released model goes live, answers through the gateway, and is rolled back.

Two servers run for the time of this step: one for the model, and the API with the gateway in front of it. A second demo finds the
model deployed and asks again.
"""

from pathlib import Path
from typing import Any

import httpx
import yaml

from medloop.cli import ui
from medloop.cli.demo.clinicians import MODEL, demo_store, run_in_background, run_server, temporary_key
from medloop.cli.demo.release import REFUSED
from medloop.cli.demo.run import run_step
from medloop.client import Client
from medloop.contracts import Record
from medloop.contracts.dataset import SPLIT_FILES
from medloop.settings import CONFIG_NAME
from medloop.store.files import jsonl
from medloop.store.records.incident_rows import count_incidents
from medloop.store.records.registry import current

QUESTIONS = {
    "emergency, zh": "我爸爸突然嘴歪了，右手抬不起来，说话也不清楚，要不要等明天再看？",
    "routine, en": "I have had a runny nose and a mild cough for two days. What can I do at home?",
}
ASK_S = 120.0
CANARIES = "canaries.yaml"


def serve_live(folder: Path) -> None:
    """Register, promote, deploy, ask, rate by id, and roll back."""
    with run_in_background(folder, ["serve", "--port", "0"], wait_s=40) as url:
        write_canaries(folder)
        flags = f"--set deploy.replicas={url} --set gateway.backends={url}"
        with demo_store(folder) as store:
            may_promote = not count_incidents(store).open
            champion = current(store, store.settings.registry.model).get("champion")
        if champion is None and may_promote:
            run_step(f"registry add {MODEL}", folder, "Register the released model as a version")
            run_step("registry promote 1", folder, "The gate let it pass and two people signed, so it may become the champion")
        if may_promote:
            run_step(
                f"{flags} deploy", folder,
                "Bring the champion live: load, canary questions, switch the route, drain. The canaries are held-out questions of"
                " the kind that this toy was trained on; one that fails leaves the base model serving (exit code 10)",
                expected=(0, REFUSED),
            )  # fmt: skip
        else:
            ui.say("A safety incident is open, from the first run of the demo: nothing new may go live before it is closed.")
        run_step(f"{flags} deploy check --once", folder, "Look at the servers: one that was started anew gets its version back")
        run_step(f"{flags} deploy status", folder, "What is live, and on which server")
        with run_server(folder, flags) as address, temporary_key(folder, "chat") as key, Client(address, key) as client:
            for kind, question in QUESTIONS.items():
                answer = ask(address, key, question)
                show_answer(kind, question, answer)
                client.feedback(trace_id=answer["medloop"]["inference_id"], thumb="up" if "routine" in kind else "down")
            ui.say("A thumb for each, sent with the inference id alone: question, answer and version come from the trace.")
        if may_promote:
            take_back(folder, flags)


def take_back(folder: Path, flags: str) -> None:
    """The way back, and forth again: a version that was rolled back is blocked until somebody clears it."""
    run_step(
        f'{flags} rollback --to base --reason "worse in triage"', folder, "Take it back: one command, the base answers again"
    )
    run_step('deploy clear 1 --reason "only shown"', folder, "It was only shown: somebody clears the version ...")
    run_step("registry promote 1", folder, "... makes it the champion again ...")
    run_step(f"{flags} deploy", folder, "... and brings it live", expected=(0, REFUSED))


def write_canaries(folder: Path) -> None:
    """One emergency and one other question of the gold set in each language, the first ones, whatever the model answers."""
    rows: dict[tuple[str, str], str] = {}
    for record in jsonl.read(folder / "data/processed" / SPLIT_FILES["gold"], Record):
        expect = "urgent" if record.stratum == "emergency" else "answer"
        if record.language in ("zh", "en"):
            rows.setdefault((str(record.language), expect), record.conversation.question)
    canaries = [
        {"canary_id": f"gold-{expect}-{language}", "language": language, "expect": expect, "question": question}
        for (language, expect), question in sorted(rows.items())
    ]
    (folder / CANARIES).write_text(yaml.safe_dump(canaries, allow_unicode=True), encoding="utf-8")
    settings = folder / CONFIG_NAME  # the probes of the live version ask them, too
    text = settings.read_text(encoding="utf-8")
    if "\ndeploy:" not in text:
        settings.write_text(f"{text.rstrip()}\ndeploy:\n  canaries: {CANARIES}\n", encoding="utf-8")


def ask(address: str, key: str, question: str) -> dict[str, Any]:
    """One question to the live assistant, as any client of OpenAI's protocol sends it."""
    body = {"model": "medloop", "messages": [{"role": "user", "content": question}], "max_tokens": 160, "temperature": 0}
    headers = {"Authorization": f"Bearer {key}"}
    reply = httpx.post(f"{address}/v1/chat/completions", json=body, headers=headers, timeout=ASK_S, trust_env=False)
    answer: dict[str, Any] = reply.raise_for_status().json()
    return answer


def show_answer(kind: str, question: str, answer: dict[str, Any]) -> None:
    said = answer["choices"][0]["message"]["content"]
    about = answer["medloop"]
    ui.say(f"\nPOST /v1/chat/completions ({kind})\n  asked     {question}")
    ui.say("  answered  " + " ".join(said.split())[:240])
    ui.say(f"  version   {about.get('version')}, snapshot {str(about.get('snapshot'))[:19]}…, inference {about['inference_id']}")
