"""`medloop serve`: told at once what is wrong, and ended without a lost answer."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from medloop.testing.models import random_adapter, tiny_model
from medloop.testing.processes import running_medloop


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--host", "0.0.0.0"], 2, "callers need an API key"),
        (["--host", "nowhere"], 2, "is not an IP address"),
        (["--adapter", "a b=c"], 2, "is not NAME=FOLDER"),
        (["--adapter", "x=no/such/folder"], 4, "There is no adapter"),
        (["--model", "no/such/folder/at/all"], 4, "There is no model"),
        (["--model", "embedded:huge"], 4, "There is no embedded:huge"),
    ],
)
def test_what_is_wrong_is_told_before_torch_is_loaded(tmp_path: Path, words: list[str], code: int, sentence: str) -> None:
    script = (
        "import sys\nfrom medloop.cli import main\n"
        "try: main()\nexcept SystemExit as end: code = end.code\n"
        "print(code, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, "serve", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "COLUMNS": "200"})
    assert sentence in done.stderr and done.stdout.split() == [str(code), "False"]


def test_a_short_key_and_a_port_in_use_are_refused(command_line: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("short\n")
    ended = command_line("serve", "--host", "0.0.0.0", "--api-key-file", tmp_path / "keys")
    assert ended.code == 2 and "16 or more" in ended.err
    with socket.create_server(("127.0.0.1", 0)) as busy:
        ended = command_line("serve", "--port", str(busy.getsockname()[1]))
    assert ended.code == 2 and "cannot be used" in ended.err


def wait_for_address(output: Path, child: Any) -> str:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and child.is_alive():
        if output.exists() and (match := re.search(r"at (http://\S+)", output.read_text())):
            return match[1]
        time.sleep(0.02)
    raise AssertionError(output.read_text() if output.exists() else "nothing was printed")


def test_sigterm_answers_what_runs_and_ends_with_0(tmp_path: Path) -> None:
    base = tiny_model(tmp_path / "base")
    adapter = random_adapter(tmp_path / "one", base, 1)
    words = ("serve", "--model", str(base), "--name", "base", "--adapter", f"one-v1={adapter}", "--port", "0", "--max-rows", "2")
    with running_medloop(*words, cwd=tmp_path) as (child, output):
        url = wait_for_address(output, child)
        assert "Serving base, one-v1 at" in output.read_text() and "fast forward on" in output.read_text()
        answers: list[httpx.Response] = []
        body = {"model": "one-v1", "prompt": "Hello", "max_tokens": 450, "ignore_eos": True, "temperature": 0}
        threads = [
            threading.Thread(target=lambda: answers.append(httpx.post(f"{url}/v1/completions", json=body, timeout=300)))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 120
        while "medloop_serve_waiting 4" not in httpx.get(f"{url}/metrics", timeout=60).text and time.monotonic() < deadline:
            if answers:
                break
        os.kill(child.pid, signal.SIGTERM)
        for thread in threads:
            thread.join()
        child.join(120)
        assert child.exitcode == 0
    assert [answer.status_code for answer in answers] == [200] * 6
    assert {answer.json()["usage"]["completion_tokens"] for answer in answers} == {450}
