"""The round trip with the real Label Studio 1.23.2, in its own environment: make test-label-studio.

Twenty answers that people disliked go out by `medloop annotate push`; two annotators log in there as people do and annotate over
its API; `medloop annotate pull` brings them back. One annotation is bogus, which the real server takes without a word.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from annotation_desk import GOLDEN, add_negatives, add_people, build, built, corrected, new_workspace, stars, text

from medloop.annotate.label_config import ANSWERS, COMPARISONS
from medloop.contracts import Correction, Feedback
from medloop.loop.codebook import propose_new
from medloop.loop.erasure import erase_records
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud
from medloop.store.records.workspace_settings import set_consent_default

pytestmark = pytest.mark.label_studio

PYTHON = os.environ.get("LABEL_STUDIO_PYTHON", "")
LEGACY = "0123456789abcdef0123456789abcdef01234567"
PASSWORD = "Ann0tate-here"
START_S = 900  # the first start makes the database: minutes on a busy machine


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not PYTHON:
        pytest.skip("LABEL_STUDIO_PYTHON is not set: make test-label-studio")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("label-studio")
    environment = {
        **os.environ, "LABEL_STUDIO_BASE_DATA_DIR": str(folder), "LABEL_STUDIO_USERNAME": "admin@example.org",
        "LABEL_STUDIO_PASSWORD": PASSWORD, "LABEL_STUDIO_USER_TOKEN": LEGACY, "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
        "LABEL_STUDIO_DISABLE_SIGNUP_WITHOUT_LINK": "true", "COLLECT_ANALYTICS": "false", "LATEST_VERSION_CHECK": "false",
        "SENTRY_DSN": "", "FRONTEND_SENTRY_DSN": "", "SSRF_PROTECTION_ENABLED": "false",
    }  # fmt: skip
    command = [str(Path(PYTHON).parent / "label-studio"), "start", "--no-browser", "--internal-host", "127.0.0.1"]
    with open(folder / "server.log", "wb") as log:
        server = subprocess.Popen(
            [*command, "--port", str(port)], env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, server, folder / "server.log")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert server.poll() is None, log.read_text()[-2000:]
        try:
            if httpx.get(f"{url}/health", timeout=30).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise AssertionError(f"Label Studio did not start within {START_S} s: {log.read_text()[-2000:]}")


def admin(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Token {LEGACY}"}, timeout=120)


class Annotator:
    """Somebody who joined by a link and works there with their own session."""

    def __init__(self, url: str, invitation: str, email: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=120, follow_redirects=True)
        form = self.http.get(invitation)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.text)
        assert token is not None, form.status_code
        fields = {"email": email, "password": PASSWORD, "csrfmiddlewaretoken": token[1], "how_find_us": "", "elaborate": ""}
        joined = self.http.post(invitation, data=fields, headers={"Referer": f"{url}{invitation}"})
        assert joined.status_code == 200, joined.text[:500]
        assert self.http.get("/api/current-user/whoami").json()["email"] == email

    def annotate(self, task_id: int, result: Any) -> dict[str, Any]:
        headers = {"X-CSRFToken": self.http.cookies["csrftoken"], "Referer": str(self.http.base_url)}
        answer = self.http.post(f"/api/tasks/{task_id}/annotations/", json={"result": result, "lead_time": 9.5}, headers=headers)
        assert answer.status_code == 201, answer.text[:500]
        return dict(answer.json())

    def change(self, annotation: dict[str, Any], result: Any) -> None:
        headers = {"X-CSRFToken": self.http.cookies["csrftoken"], "Referer": str(self.http.base_url)}
        answer = self.http.patch(f"/api/annotations/{annotation['id']}/", json={"result": result}, headers=headers)
        assert answer.status_code == 200, answer.text[:500]


def test_the_label_configs_are_valid_there(address: str) -> None:
    with admin(address) as http:
        for form in (ANSWERS, COMPARISONS):
            answer = http.post("/api/projects/validate/", json={"label_config": form.config})
            assert answer.status_code == 204, answer.text


def test_twenty_negatives_go_out_and_come_back(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command_line: Callable[..., Any]
) -> None:
    home = new_workspace(tmp_path / "clinic")
    settings = Settings(home=home)
    with open_store(settings) as store:
        people = add_people(store)
        add_negatives(store, 20, rater=people["dr-wu"])
        set_consent_default(store, ["training"], actor="t")
    with admin(address) as http:
        personal = http.post("/api/token/").json()["token"]
        invitation = http.get("/api/invite").json()["invite_url"]
        monkeypatch.setenv("LABEL_STUDIO_URL", address)
        monkeypatch.setenv("LABEL_STUDIO_API_KEY", personal)
        monkeypatch.setenv("MEDLOOP_LABEL_STUDIO__RATERS", "li@example.org=dr-li,wu@example.org=dr-wu")

        def run(*words: str) -> Any:
            ended = command_line("--home", home, "annotate", *words, "--json")
            assert ended.code == 0, ended.err
            return json.loads(ended.out)

        pushed = run("push", "--n", "20")
        assert pushed["pushed"] == 20
        assert run("push")["pushed"] == 0
        listed = http.get("/api/tasks/", params={"project": pushed["projects"][0], "fields": "all", "page_size": 100}).json()
        ids = sorted(task["id"] for task in listed["tasks"])
        assert len(ids) == 20

        li, wu, stranger = (Annotator(address, invitation, f"{name}@example.org") for name in ("li", "wu", "stranger"))
        annotations = {task: (li if n % 2 else wu).annotate(task, corrected(n)) for n, task in enumerate(ids[:18])}
        bogus = [{"from_name": "nonsense", "to_name": "answer", "type": "choices", "value": {"choices": ["x"]}}]
        li.annotate(ids[18], bogus)  # the real server answers 201
        stranger.annotate(ids[19], corrected(19))

        pulled = run("pull")
        assert (pulled["corrections"], pulled["ratings"]) == (18, 18)
        assert (pulled["problems"], pulled["unknown"]) == ({"unknown_control": 1}, {"stranger@example.org": 1})
        assert run("pull")["new"] == 0
        status = run("status")["projects"][0]
        assert (status["sent"], status["records"], list(status["problems"].values())) == (20, 36, ["unknown_control"])

        with open_store(settings) as store:
            corrections = list(crud.iterate(store, Correction))
            assert {c.clinician_id for c in corrections} == {people["dr-li"], people["dr-wu"]}
            build(store)
            golden = {GOLDEN.format(n) for n in range(18)}
            learnt = {row["conversation"]["messages"][-1]["content"] for row in built(store, home, "sft_train.jsonl")}
            chosen = {row["chosen"] for row in built(store, home, "preferences.jsonl")}
            assert learnt <= golden and chosen <= golden
            assert len(learnt) >= 12 <= len(chosen)  # the questions repeat after twelve, and near-copies are dropped
            assert built(store, home, "rules.jsonl") and propose_new(store, actor="t").entries

        # Changed there: the new words supersede the old ones.
        second = ids[1]
        li.change(annotations[second], [stars(1), text("golden", "Call an ambulance now.")])
        assert run("pull")["changed"] == 2
        with open_store(settings) as store:
            assert list(crud.iterate(store, Correction))[-1].golden == "Call an ambulance now."
            assert list(crud.iterate(store, Feedback))[-1].rating == 1
            # Erased here: the task goes there, and nothing comes back.
            trace = next(c.trace_id for c in crud.iterate(store, Correction) if c.golden == "Call an ambulance now.")
            erase_records(store, ErasureRequest(records=(trace or "",), reason="asked for it"), actor="t")
        gone = run("pull", "--all")
        # An erasure also takes items whose words a merged rule shares with what is erased, so it may be more than one task.
        assert 1 <= gone["deleted"] <= 3 and gone["new"] == 0
        assert http.get(f"/api/tasks/{second}/").status_code == 404
        for who in (li, wu, stranger):
            who.http.close()
