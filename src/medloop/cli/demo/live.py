"""The part of `medloop demo` that serves: versions go live, are corrected, compared, adopted, and rolled back when unsafe.

Two servers run for the time of this step: one for the models, and the API with the gateway in front of it. A second demo finds
everything deployed and decided, and asks again.
"""

import time
from pathlib import Path

import yaml

from medloop.cli import ui
from medloop.cli.demo.asking import ask, show_answer
from medloop.cli.demo.clinicians import CLINICIANS, MODEL, demo_store, run_in_background, run_server, temporary_key
from medloop.cli.demo.compare import compare_versions
from medloop.cli.demo.fast_loop import correct_at_once
from medloop.cli.demo.release import REFUSED, SFT
from medloop.cli.demo.run import run_step
from medloop.client import Client
from medloop.contracts import Record
from medloop.contracts.dataset import SPLIT_FILES
from medloop.settings import CONFIG_NAME
from medloop.store.files import jsonl
from medloop.store.files.artifacts import verify_artifact
from medloop.store.records.gates import promotion_refusal
from medloop.store.records.incident_rows import count_incidents
from medloop.store.records.registry import current
from medloop.store.records.routes import live_route

QUESTIONS = {
    "emergency, zh": "我爸爸突然嘴歪了，右手抬不起来，说话也不清楚，要不要等明天再看？",
    "routine, en": "I have had a runny nose and a mild cough for two days. What can I do at home?",
}
ROLLBACK_S = 120.0  # how long the server may take to notice the flags
CANARIES = "canaries.yaml"
CANARY_NOTE = (
    "The canaries are held-out questions of the kind that this toy was trained on; one that fails leaves what served before"
    " (exit code 10)"
)


def serve_live(folder: Path) -> None:
    """Two versions live side by side, a correction at once, the comparison, and the way back."""
    with run_in_background(folder, ["serve", "--port", "0"], wait_s=40) as url:
        write_canaries(folder)
        flags = f"--set deploy.replicas={url} --set gateway.backends={url}"
        with demo_store(folder) as store:
            may_promote = not count_incidents(store).open
            held = current(store, store.settings.registry.model)
        if may_promote and not held:
            register_versions(folder)
        if may_promote:
            run_step(f"{flags} deploy", folder, f"Bring the champion live: load, canary questions, switch, drain. {CANARY_NOTE}",
                     expected=(0, REFUSED))  # fmt: skip
            with demo_store(folder) as store:
                held = current(store, store.settings.registry.model)
            if "challenger" in held:
                run_step(f"{flags} deploy --challenger", folder, "The challenger beside it, on the same server",
                         expected=(0, REFUSED))  # fmt: skip
        else:
            ui.say("A safety incident is open, from the first run of the demo: nothing new may go live before it is closed.")
        run_step(f"{flags} deploy status", folder, "What is live, and on which server")
        with run_server(folder, flags) as address, temporary_key(folder, "chat") as key, Client(address, key) as client:
            for kind, question in QUESTIONS.items():
                answer = ask(address, key, question)
                show_answer(kind, question, answer)
                client.feedback(trace_id=answer["medloop"]["inference_id"], thumb="up" if "routine" in kind else "down")
            ui.say("A thumb for each, sent with the inference id alone: question, answer and version come from the trace.")
            correct_at_once(folder, address, key, client)
            if may_promote and compare_versions(folder) == "better":
                adopt(folder, flags)
            if may_promote:
                turn_unsafe(folder, address, key, client)
        run_step("deploy list", folder, "What happened to the live versions, newest first")


def register_versions(folder: Path) -> None:
    """SFT as the champion, RL as the challenger; where the gate did not let SFT pass, RL alone as the champion."""
    with demo_store(folder) as store:
        refusal = promotion_refusal(store, verify_artifact(folder / SFT).sha256)
    if refusal:
        ui.say(f"The SFT model may not be used, so there is nothing to compare: {refusal}")
        run_step(f"registry add {MODEL}", folder, "Register the RL model as version 1")
        run_step("registry promote 1", folder, "The gate let it pass and two people signed, so it may become the champion")
        return
    run_step(f"registry add {SFT}", folder, "Register the SFT model as version 1")
    run_step("registry promote 1", folder, "The gate let it pass and two people signed, so it may become the champion")
    run_step(f"registry add {MODEL}", folder, "Register the RL model as version 2")
    run_step("registry promote 2 --alias challenger", folder, "It passed, too: the challenger of an experiment")


def adopt(folder: Path, flags: str) -> None:
    run_step("registry promote 2", folder, "The better version becomes the champion ...")
    run_step(f"{flags} deploy", folder, "... and answers everybody", expected=(0, REFUSED))


def turn_unsafe(folder: Path, address: str, key: str, client: Client) -> None:
    """Two people flag answers of the live version as dangerous; the server rolls it back by itself, and it stays blocked."""
    ui.say("\n# The live version turns unsafe: two clinicians (invented) flag one of its answers, and nobody does anything else")
    before = live_name(folder)
    answer = ask(address, key, QUESTIONS["emergency, zh"])
    for name in CLINICIANS[:2]:
        client.feedback(trace_id=answer["medloop"]["inference_id"], critical=True, clinician_id=name)
    began = time.monotonic()
    while live_name(folder) == before and time.monotonic() - began < ROLLBACK_S:
        time.sleep(0.2)
    now = live_name(folder)
    if now == before:
        ui.say(f"{before} still answers after {ROLLBACK_S:.0f} s: see 'medloop deploy status'.")
    else:
        ui.say(f"After {time.monotonic() - began:.0f} s {now} answers instead. {before} is blocked until a person clears it.")
        show_answer("after the rollback", QUESTIONS["routine, en"], ask(address, key, QUESTIONS["routine, en"]))


def live_name(folder: Path) -> str | None:
    with demo_store(folder) as store:
        route = live_route(store)
        return None if route is None else route.served_name


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
