"""Versions swapped under load through the protocol of 'medloop deploy': no failed request, no answer of another version.

The embedded server always, real vLLM by 'make test-vllm'. Every answer is compared with greedy text of transformers and peft.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from deploy_world import MODEL, promote, register

from medloop.contracts import ModelRef
from medloop.contracts.deploy import CanaryVerdict
from medloop.deploy import canary
from medloop.loop.deploy import deploy_alias, open_fleet
from medloop.loop.workspace import init_workspace
from medloop.models.find import resolve as resolve_model
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.files.artifacts import new_artifact, verify_artifact
from medloop.store.records.routes import live_route, route_number
from medloop.testing.registry import examine

QUESTIONS = ("What helps?", "My head hurts since Monday.", "头痛两天了，怎么办？")
VERSIONS, CLIENTS, TOKENS = 5, 4, 16
OUT = os.environ.get("VLLM_REPORT", "")


@pytest.fixture
def deployed(request: pytest.FixtureRequest, tmp_path: Path):
    """(settings, base) of a workspace whose versions are random adapters, in front of one real server."""
    from medloop.testing.model_server import model_server
    from medloop.testing.models import tiny_model

    home = tmp_path / "clinic"
    init_workspace(home)
    if request.param == "vllm":
        if not (python := os.environ.get("VLLM_PYTHON")):
            pytest.skip("no vLLM: make test-vllm")
        from medloop.testing.vllm_server import vllm_server

        base = resolve_model(ModelRef(base="embedded:tiny"), Settings(home=home)).folder  # heads as vLLM wants them
        with vllm_server(python, base) as url:
            yield _workspace(home, url, base), base
        return
    base = tiny_model(tmp_path / "base")
    with model_server(str(base), max_rows=8, queue_places=64) as server:
        yield _workspace(home, server.url, base), base


def _workspace(home: Path, url: str, base: Path) -> Settings:
    from medloop.testing.models import random_adapter

    deploy = {"replicas": url, "drain_s": 3, "keep_versions": VERSIONS}
    settings = Settings.model_validate({"home": home, "deploy": deploy})
    with open_store(settings) as store:
        for number in range(1, VERSIONS + 1):
            name = f"v{number}"
            made = random_adapter(home / "made" / name, base, number)
            with new_artifact(settings.workspace.models / "lora" / name) as folder:
                shutil.copytree(made, folder, dirs_exist_ok=True)
            artifact = verify_artifact(settings.workspace.models / "lora" / name).sha256
            examine(store, artifact)
            register(store, name, artifact)
    return settings


def references(base: Path, settings: Settings) -> dict[tuple[int, str], str]:
    """Greedy text by transformers and peft, by version and question."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, texts = AutoTokenizer.from_pretrained(base), dict[tuple[int, str], str]()
    for version in range(1, VERSIONS + 1):
        folder = settings.workspace.models / "lora" / f"v{version}"
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), folder)
        for question in QUESTIONS:
            prompt = tokenizer.apply_chat_template(
                [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            with torch.no_grad():
                ids = model.generate(**prompt, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)[0]
            texts[version, question] = tokenizer.decode(ids[prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    return texts


def is_same(text: str, wanted: str) -> bool:
    """Whether a server gave this text. vLLM holds the last tokens back while they end in the middle of a character."""
    return text == wanted or (wanted.endswith("\N{REPLACEMENT CHARACTER}") and text != "" and wanted.startswith(text))


@dataclass
class Client:
    """Asks whatever is live, again and again, as the gateway does: the route is read when its number has changed."""

    settings: Settings
    url: str
    number: int
    ended: threading.Event
    answers: list[tuple[int, str, int, str]] = field(default_factory=list)  # version, question, status, text

    def run(self) -> None:
        with open_store(self.settings) as store, httpx.Client(timeout=120, trust_env=False) as http:
            known, route = 0, live_route(store)
            while not self.ended.is_set():
                if (newest := route_number(store)) != known:
                    known, route = newest, live_route(store)
                assert route is not None and route.version is not None
                question = QUESTIONS[(self.number + len(self.answers)) % len(QUESTIONS)]
                body = {
                    "model": route.served_name, "messages": [{"role": "user", "content": question}], "temperature": 0,
                    "max_tokens": TOKENS,
                }  # fmt: skip
                try:
                    answer = http.post(f"{self.url}/v1/chat/completions", json=body)
                    text = answer.json()["choices"][0]["message"]["content"] if answer.status_code == 200 else ""
                    self.answers.append((route.version, question, answer.status_code, text))
                except httpx.HTTPError:
                    self.answers.append((route.version, question, 0, ""))


def swap(store: Store, count: int, clients: list[Client]) -> list[float]:
    """Deploy the versions one after the other, each time after every client had an answer of the one before; seconds each."""
    seconds = []
    with open_fleet(store) as opened:
        fleet = replace(
            opened, canaries=opened.canaries[:2],
            judge=lambda asked, answer: CanaryVerdict(canary_id=asked.canary_id, passed=True, reason="random weights"),
        )  # fmt: skip
        for number in range(count):
            promote(store, 1 + number % VERSIONS)
            start = time.monotonic()
            assert deploy_alias(fleet, actor="test").changed
            seconds.append(time.monotonic() - start)
            if number == 0:
                for client in clients:
                    threading.Thread(target=client.run, name=f"client-{client.number}").start()
            had = [len(client.answers) for client in clients]
            deadline = time.monotonic() + 300
            while any(len(client.answers) <= before for client, before in zip(clients, had, strict=True)):
                assert time.monotonic() < deadline, "a client gets no answers"
                time.sleep(0.01)
    return seconds


@pytest.mark.parametrize(
    ("deployed", "swaps"),
    [
        ("embedded", 3),
        pytest.param("embedded", 51, marks=pytest.mark.slow),
        pytest.param("vllm", 51, marks=pytest.mark.vllm),
    ],
    indirect=["deployed"],
)
def test_swaps_under_load_fail_no_request_and_mix_no_versions(deployed: Any, swaps: int, monkeypatch) -> None:
    monkeypatch.setattr(canary, "MAX_TOKENS", TOKENS)  # random weights never end an answer by themselves
    settings, base = deployed
    wanted, ended = references(base, settings), threading.Event()
    clients = [Client(settings, settings.deploy.urls[0], number, ended) for number in range(CLIENTS)]
    try:
        with open_store(settings) as store:
            seconds = swap(store, swaps, clients)
    finally:
        ended.set()
        for thread in [thread for thread in threading.enumerate() if thread.name.startswith("client-")]:
            thread.join(120)
    answers = [answer for client in clients for answer in client.answers]
    failed = [status for _, _, status, _ in answers if status != 200]
    other = [
        (version, question)
        for version, question, status, text in answers
        if status == 200 and not is_same(text, wanted[version, question])
    ]
    report = {
        "model": MODEL, "swaps": swaps - 1, "clients": CLIENTS, "requests": len(answers), "failed": len(failed), "other_text": len(other),
        "versions": Counter(version for version, *_ in answers), "seconds_per_swap": round(sum(seconds[1:]) / max(1, len(seconds) - 1), 2),
    }  # fmt: skip
    if OUT:
        Path(OUT).write_text(json.dumps(report), encoding="utf-8")
    assert not failed and not other, report
    assert (
        len(report["versions"]) == min(swaps, VERSIONS)
        and len({wanted[v, QUESTIONS[0]] for v in range(1, VERSIONS + 1)}) == VERSIONS
    )
