"""The playground: its calls against real doors, its command, and its page in a browser (marker `playground`)."""

from __future__ import annotations

import csv
import http.server
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from medloop.cli.playground import PAGE
from medloop.loop.workspace import init_workspace

PYTHON = Path(os.environ.get("PLAYGROUND_PYTHON", ".venv-playground/bin/python")).absolute()


@pytest.fixture(scope="module")
def calls() -> ModuleType:
    """As the page imports it: without medloop."""
    spec = importlib.util.spec_from_file_location("playground_calls", PAGE.with_name("calls.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["playground_calls"] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class Door:
    """The API's shape of a chat, a trace and a rating; what came is in `seen`."""

    seen: list[tuple[str, str, Any]] = field(default_factory=list)
    url: str = ""
    ids: bool = True  # answers carry the id of their trace


@pytest.fixture
def door() -> Iterator[Door]:
    double = Door()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send({"object": "list", "data": [{"id": "medloop"}, {"id": "clinic-7b@3"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            double.seen.append((self.path, self.headers.get("authorization", ""), body))
            if self.headers.get("authorization") == "Bearer wrong":
                self.send({"error": "no"}, 401)
            elif self.path == "/v1/chat/completions":
                ids = {"medloop": {"inference_id": "0199", "version": "clinic-7b@3"}} if double.ids else {}
                text = f"Do you have a fever? ({body['model']})"
                self.send(
                    {
                        "model": body["model"],
                        "choices": [{"message": {"content": text}}],
                        "usage": {"completion_tokens": 9},
                        **ids,
                    }
                )
            else:
                self.send({"feedback_id": "fb_1", "trace_id": "logged"}, 201)

        def send(self, value: Any, status: int = 200) -> None:
            raw = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        double.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield double
        server.shutdown()
        thread.join()


def test_the_page_and_its_calls_know_nothing_of_medloop() -> None:
    for file in PAGE.parent.glob("*.py"):
        assert not re.search(r"^\s*(?:import|from) medloop", file.read_text(encoding="utf-8"), re.MULTILINE), file


def test_an_answer_names_its_version_and_goes_to_review_by_its_own_trace(calls: ModuleType, door: Door) -> None:
    assistant = calls.Assistant(door.url, "mlk_1")
    assert assistant.versions() == ["medloop", "clinic-7b@3"]
    answer = assistant.ask("medloop", "I cough.", calls.SamplingKnobs(temperature=0.5, max_tokens=7))
    assert (answer.version, answer.inference_id, answer.tokens) == ("clinic-7b@3", "0199", 9)
    assert assistant.send_to_review(answer, "misses the red flag") == "fb_1"
    (chat, key, body), (feedback, _, said) = door.seen
    assert (chat, key, body["temperature"], body["max_tokens"]) == ("/v1/chat/completions", "Bearer mlk_1", 0.5, 7)
    assert "seed" not in body
    assert (feedback, said) == ("/api/v1/rlhf/feedback", {"trace_id": "0199", "thumb": "down", "comments": "misses the red flag"})


def test_an_answer_without_a_trace_is_logged_before_its_review_and_the_key_stays_with_the_api(
    calls: ModuleType, door: Door
) -> None:  # fmt: skip
    door.ids = False
    assistant = calls.Assistant(door.url, "mlk_1", servers=(door.url,))
    assert assistant.versions()[2:] == [f"{name} ({door.url.removeprefix('http://')})" for name in ("medloop", "clinic-7b@3")]
    answer = assistant.ask(assistant.versions()[3], "I cough.", calls.SamplingKnobs())
    assistant.send_to_review(answer, "")
    assert [(path, key) for path, key, _ in door.seen] == [
        ("/v1/chat/completions", ""), ("/api/v1/traces", "Bearer mlk_1"), ("/api/v1/rlhf/feedback", "Bearer mlk_1"),
    ]  # fmt: skip
    assert door.seen[2][2]["trace_id"] == "logged"


def test_a_refusal_is_said_in_words(calls: ModuleType, door: Door) -> None:
    with pytest.raises(calls.PlaygroundError, match="medloop api keys new"):
        calls.Assistant(door.url, "wrong").ask("medloop", "I cough.", calls.SamplingKnobs())
    with pytest.raises(calls.PlaygroundError, match="cannot be reached"):
        calls.Assistant("http://127.0.0.1:1", "k").versions()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("q.jsonl", '{"question": "I cough."}\n{"question": "我头疼。"}\n'),
        ("q.json", '["I cough.", "我头疼。"]'),
        ("q.csv", "id,question\n1,I cough.\n2,我头疼。\n"),
        ("q.txt", "I cough.\n\n我头疼。\n"),
    ],
)
def test_a_batch_reads_the_usual_files(name: str, text: str, calls: ModuleType, door: Door, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    questions = calls.read_questions(tmp_path / name)
    assert questions == ["I cough.", "我头疼。"]
    rows = list(calls.Assistant(door.url, "k").batch(["medloop"], questions, calls.SamplingKnobs()))
    calls.write_answers(tmp_path / "out.csv", ["medloop"], [*rows, ["=1+1", "-x"]])
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.reader(file))
    assert read[0] == ["question", "medloop"] and read[1][1].startswith("Do you have a fever?") and read[3] == ["'=1+1", "'-x"]


@pytest.mark.parametrize(
    ("environ", "args", "said"),
    [
        ({}, (), "MEDLOOP_PLAYGROUND_KEY"),
        ({"MEDLOOP_PLAYGROUND_KEY": "k"}, ("--python", "nowhere/python"), "make playground-env"),
        ({"MEDLOOP_PLAYGROUND_KEY": "k"}, ("--python", sys.executable, "--url", "http://clinic.example.org"), "over https"),
    ],
)
def test_the_command_says_what_is_missing(environ: dict[str, str], args: Any, said: str, command_line, monkeypatch) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    done = command_line("playground", *args)
    assert done.code == 2 and said in done.err


def test_the_key_that_the_command_asks_for_can_be_made(tmp_path: Path, command_line) -> None:
    home = tmp_path / "clinic"
    init_workspace(home)
    [step] = re.findall(r"medloop (api keys new .*?)\.?$", command_line("playground").err.strip(), re.MULTILINE)
    assert command_line("--home", home, "users", "add", "ann", "--role", "engineer", "--no-password").code == 0
    done = command_line("--home", home, *step.rstrip(".").replace("NAME", "ann").split())
    assert done.code == 0 and "mlk_" in done.out, done.err


@pytest.mark.playground
def test_the_page_in_a_browser_compares_two_versions_and_sends_one_answer_to_review(door: Door, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    code = "from medloop.cli import main; main()"
    command = [sys.executable, "-c", code, "playground", "--url", door.url, "--port", "0", "--python", str(PYTHON)]
    environ = {**os.environ, "MEDLOOP_PLAYGROUND_KEY": "mlk_1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    (tmp_path / "q.txt").write_text("I cough.\nMy knee hurts.\n")
    try:
        assert process.stdout
        address = process.stdout.readline().split()[4]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            page = browser.new_page()
            outside: list[str] = []
            page.on("request", lambda request: outside.append(request.url))
            response = page.goto(address)
            assert response and "frame-ancestors 'none'" in response.headers["content-security-policy"]
            assert "120" in page.inner_text("#safety-notice")
            page.fill("#question textarea", "I have had a cough for two weeks.")
            page.click("#ask")
            for side, name in (("a", "medloop"), ("b", "clinic-7b@3")):
                page.wait_for_function(f"document.querySelector('#answer-{side} textarea').value.includes('({name})')")
            page.fill("#reason-b textarea", "misses the red flag")
            page.click("#review-b")
            page.wait_for_selector("#outcome-b >> text=fb_1")
            page.get_by_role("tab", name="Batch").click()
            page.set_input_files("input[type=file]", str(tmp_path / "q.txt"))
            page.wait_for_selector("text=q.txt")
            page.get_by_role("button", name="Predict").click()
            page.wait_for_selector("text=2 questions answered.")
            browser.close()
        assert not [
            url for url in outside if not url.startswith((address, "data:", "blob:", f"ws{address.removeprefix('http')}"))
        ]
        assert door.seen[-3][2]["comments"] == "misses the red flag" and {key for _, key, _ in door.seen} == {"Bearer mlk_1"}
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout:
            process.stdout.close()
