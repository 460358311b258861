"""Long texts full of names from one sender: others are answered meanwhile, and the server still ends in time."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from medloop.loop.workspace import init_workspace

TURN = "".join(
    f"患者{a}{b}{c}来电。" for a in "王李张刘陈杨赵黄周吴" for b in "芳伟娜敏静丽强磊军洋" for c in "勇艳杰娟涛明超秀霞平"
)[:20_000]
HOSTILE = [{"role": role, "content": TURN} for role in ("user", "assistant") * 4]  # 56,000 characters, 8,000 names


def _key(home: Path, name: str, role: str) -> str:
    medloop = [sys.executable, "-m", "medloop", "--home", str(home)]
    subprocess.run([*medloop, "users", "add", name, "--role", role], check=True, capture_output=True)
    made = subprocess.run(
        [*medloop, "api", "keys", "new", name, "--scope", "feedback:write"], check=True, capture_output=True, text=True
    )
    return re.findall(r"mlk_\S+", made.stdout)[0]


@pytest.mark.slow
def test_one_sender_of_hostile_texts_delays_nobody_else_and_no_shutdown(tmp_path: Path) -> None:
    home = tmp_path / "clinic"
    init_workspace(home)
    keys = [_key(home, name, "engineer") for name in ("greedy", "modest")]
    command = [sys.executable, "-u", "-m", "medloop", "--home", str(home), "api", "serve", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    assert server.stdout is not None
    output = ""
    while "Serving" not in output:
        output += server.stdout.readline()
    url = re.findall(r"http://127\.0\.0\.1:\d+", output)[0]
    body = {"session_id": "s", "agent_name": "a", "model_version": "v"}

    codes: list[int] = []

    def flood() -> None:
        sent = {"json": {**body, "messages": HOSTILE}, "headers": _bearer(keys[0]), "timeout": 120}
        codes.append(_quietly(f"{url}/api/v1/traces", **sent))

    threads = [threading.Thread(target=flood, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    for turns in ("I cough.", "I have had a cough for two weeks. " * 100):
        messages = [{"role": "user", "content": turns}]
        answer = httpx.post(f"{url}/api/v1/traces", json={**body, "messages": messages}, headers=_bearer(keys[1]), timeout=120)
        assert answer.status_code == 201, answer.text
    short = json.dumps({"kind": "trace", **body, "messages": [{"role": "user", "content": TURN[:1900]}]}) + "\n"
    lines = {"content": short * 1000, "headers": {**_bearer(keys[0]), "Content-Type": "application/x-ndjson"}, "timeout": 120}
    threading.Thread(target=_quietly, args=(f"{url}/api/v1/rlhf/import",), kwargs=lines, daemon=True).start()
    time.sleep(1)
    assert sum(thread.is_alive() for thread in threads) > 5  # most of the flood is still waiting
    os.killpg(server.pid, signal.SIGTERM)
    assert server.wait(timeout=10) == 0
    assert {503} <= set(codes) <= {201, 503}  # what had not begun was told so at once, and nothing broke
    server.stdout.close()


def _quietly(url: str, **more: Any) -> int:
    try:
        return httpx.post(url, **more).status_code
    except httpx.HTTPError:
        return 0  # the server ended before it was answered


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
