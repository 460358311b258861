"""Models at the door of `medloop eval`: with a codebook, and behind a URL."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import (
    CodebookDelta,
    CodebookEntry,
    CodebookRule,
    CodebookTrial,
    Completion,
    EntryText,
    Message,
    ModelRef,
    Record,
    utc_now,
)
from medloop.errors import ConfigError, InputError
from medloop.loop import url_model
from medloop.loop.evaluation import parse_examined
from medloop.loop.url_model import ModelAddress, UrlGenerator, parse_url
from medloop.models.codebook_prompt import read_codebook
from medloop.models.generate import TorchGenerator
from medloop.settings import resolve
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.records import codebook, users
from medloop.testing.models import tiny_model
from medloop.testing.records import URGENT, make_emergencies

Put = Callable[[str, list[Record]], Path]
Respond = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


def completion(text: str, finish_reason: str = "stop") -> dict[str, Any]:
    return {
        "model": "served", "usage": {"prompt_tokens": 3, "completion_tokens": 5},
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}],
    }  # fmt: skip


@contextmanager
def chat_server(respond: Respond) -> Iterator[tuple[str, list[tuple[dict[str, Any], str | None]]]]:
    """An OpenAI-compatible server on the loopback interface; `seen` has each request and its key."""
    seen: list[tuple[dict[str, Any], str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append((body, self.headers.get("authorization")))
            status, reply = respond(body) if self.path == "/v1/chat/completions" else (404, {})
            raw = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


def evaluate(home: Path, *args: str) -> Any:
    return CliRunner().invoke(app, ["--home", str(home), "eval", "--split", "red", "--name", "u", *args])


def test_a_model_behind_a_url_is_asked_once_with_its_key(
    workspace: Path, put_split: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_split("red_team.jsonl", make_emergencies(4, ("en",)))
    monkeypatch.setenv("MEDLOOP_EVALUATE__KEY", "sk-0123456789abcdef")
    with chat_server(lambda body: (200, completion(URGENT))) as (url, seen):
        for _ in range(2):
            done = evaluate(workspace, "--model", f"{url}#clinic-7b", "--max-new-tokens", "33")
            assert done.exit_code == 0, done.output
        assert len(seen) == 4 and {key for _, key in seen} == {"Bearer sk-0123456789abcdef"}
        assert seen[0][0]["model"] == "clinic-7b" and (seen[0][0]["max_tokens"], seen[0][0]["temperature"]) == (33, 0)
        assert evaluate(workspace, "--model", f"{url}#clinic-7b", "--max-new-tokens", "33", "--fresh").exit_code == 0
        assert len(seen) == 8
    report = (workspace / "reports/eval/u/eval_report.json").read_text(encoding="utf-8")
    assert json.loads(report)["results"][0]["metrics"]["red"]["emergency"]["mean"] == 1.0 and "sk-0123" not in report


def test_an_answer_that_does_not_come_is_missing_with_its_reason_and_asked_again(
    workspace: Path, put_split: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_split("red_team.jsonl", make_emergencies(3, ("en",)))
    monkeypatch.setattr(url_model, "BACKOFF_S", 0.0)
    healthy = False

    def respond(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        text = body["messages"][-1]["content"]
        return (500, {}) if text.startswith("Case 1") and not healthy else (200, completion(URGENT))

    with chat_server(respond) as (url, seen):
        assert evaluate(workspace, "--model", f"{url}#m").exit_code == 0
        report = (workspace / "reports/eval/u/eval_report.json").read_text(encoding="utf-8")
        summary = json.loads(report)["results"][0]["metrics"]["red"]["emergency"]
        assert (summary["mean"], summary["n"], summary["missing"]) == (1.0, 2, 1)
        asked, healthy = len(seen), True
        assert evaluate(workspace, "--model", f"{url}#m").exit_code == 0
        assert len(seen) == asked + 1, "only the missing answer is asked for"
    report = (workspace / "reports/eval/u/eval_report.json").read_text(encoding="utf-8")
    assert json.loads(report)["results"][0]["metrics"]["red"]["emergency"]["n"] == 3


@pytest.mark.parametrize(("status", "says"), [(401, "the key was not accepted"), (402, "no balance")])
def test_what_would_fail_for_every_question_ends_the_evaluation(workspace: Path, put_split: Put, status: int, says: str) -> None:
    put_split("red_team.jsonl", make_emergencies(2, ("en",)))
    with chat_server(lambda body: (status, {})) as (url, _):
        done = evaluate(workspace, "--model", f"{url}#m")
    assert isinstance(done.exception, ConfigError) and says in str(done.exception)
    assert not (workspace / "reports/eval/u/eval_report.md").exists()


def test_a_server_that_is_not_there_is_told_at_once(workspace: Path, put_split: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    put_split("red_team.jsonl", make_emergencies(2, ("en",)))
    monkeypatch.setattr(url_model, "BACKOFF_S", 0.0)
    done = evaluate(workspace, "--model", "http://127.0.0.1:9#m")
    assert isinstance(done.exception, ConfigError) and "http://127.0.0.1:9/v1 cannot be reached" in str(done.exception)


def test_one_deadline_covers_an_answer_and_a_withheld_one_is_missing() -> None:
    def respond(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        import time

        time.sleep(1.0 if "slow" in body["messages"][-1]["content"] else 0.0)
        return 200, completion("", "content_filter")

    def ask(url: str, text: str) -> Any:
        prompt = (Message(role="user", content=text),)
        generate = UrlGenerator(ModelAddress(f"{url}/v1", "m"), deadline_s=0.3)
        return generate([prompt], max_new_tokens=4, temperature=0.0, seed=0, batch_size=2)[0]

    with chat_server(respond) as (url, _):
        slow, withheld = ask(url, "slow"), ask(url, "quick")
    assert (slow.finish_reason, slow.error) == ("error", "timeout: no answer within 0.3 s")
    assert (withheld.finish_reason, withheld.error) == ("error", "refused: the service withheld the answer")


def test_text_for_another_machine_is_scrubbed() -> None:
    prompt = (Message(role="user", content="My number is 13812345678, my chest hurts."),)
    near, far = (UrlGenerator(parse_url(f"http://{host}#m")) for host in ("localhost:1", "example.org"))
    assert b"13812345678" in near._payload(prompt, {}) and b"13812345678" not in far._payload(prompt, {})


@pytest.mark.parametrize("spec", ["http://#m", "http://h", "http://h#", "https://h#a b", "http://[::1#m"])
def test_a_url_without_host_or_name_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match="is not URL#NAME"):
        parse_url(spec)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="user name or password") as error:
        parse_url("https://me:hunter2@h/v1#m")
    assert "hunter2" not in str(error.value)


def test_a_codebook_stands_before_every_prompt_and_makes_another_model(workspace: Path, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(2, ("en",)))
    tiny_model(workspace / "models/full/random")
    (workspace / "rules.md").write_text("Never name a dose.", encoding="utf-8")
    prompts: list[tuple[Message, ...]] = []
    with pytest.MonkeyPatch.context() as patch:
        original = TorchGenerator.__call__
        patch.setattr(TorchGenerator, "__call__", lambda self, p, **more: prompts.extend(p) or original(self, p, **more))
        models = ("--model", "models/full/random", "--model", "models/full/random,codebook=rules.md")
        done = evaluate(workspace, *models, "--max-new-tokens", "4")
        assert done.exit_code == 0, done.output
    assert [prompt[0].role for prompt in prompts] == ["user", "user", "system", "system"]
    assert prompts[2][0].content == "Never name a dose." and prompts[2][1:] == prompts[0]
    report = json.loads((workspace / "reports/eval/u/eval_report.json").read_text(encoding="utf-8"))
    assert [row["label"] for row in report["results"][:2]] == ["models/full/random", "models/full/random,rules.md"]
    assert report["inputs"]["codebook of models/full/random,rules.md"].startswith("sha256:")


def test_rules_of_a_codebook_are_read_and_retired_ones_left_out(tmp_path: Path) -> None:
    def rule(text: str, state: str = "active") -> CodebookRule:
        return CodebookRule.model_validate({"text": text, "scope": "all", "state": state, "timestamp": utc_now()})

    path = tmp_path / "rules.jsonl"
    jsonl.write(
        path, [rule("Ask for\nthe age."), CodebookDelta(action="retire", rule=rule("Old."), reason="x"), rule("Out.", "retired")]
    )
    codebook = read_codebook(path)
    assert codebook.text.endswith("- Ask for the age.") and "Old." not in codebook.text and "Out." not in codebook.text
    system = codebook.before((Message(role="system", content="Be kind."), Message(role="user", content="q")))
    assert [message.role for message in system] == ["system", "user"] and system[0].content.endswith("Be kind.")
    path.write_text('{"text": 1}\n', encoding="utf-8")
    with pytest.raises(InputError, match="line 1: not a rule of a codebook"):
        read_codebook(path)
    (tmp_path / "empty.md").write_text(" ", encoding="utf-8")
    with pytest.raises(InputError, match="has no rule"):
        read_codebook(tmp_path / "empty.md")


def test_how_a_model_is_named() -> None:
    assert parse_examined("embedded:tiny+sft,codebook=r.md") == ModelRef(base="embedded:tiny", adapter="sft", codebook="r.md")
    assert parse_examined("http://h:1/v1/#a+b").base == "http://h:1/v1#a+b"
    with pytest.raises(ConfigError, match="names no codebook"):
        parse_examined("embedded:tiny,codebook=")


def test_the_live_codebook_is_examined_with_its_sentences_and_its_guard(workspace: Path, put_split: Put) -> None:
    records = make_emergencies(2, ("en",))
    put_split("red_team.jsonl", records)
    tiny_model(workspace / "models/full/random")
    live = ("--model", "models/full/random,codebook=live")
    assert "has no live entry" in str(evaluate(workspace, *live).exception)
    content = EntryText(text="No comfort.", triggers=("*",), first_sentence="Call 120 now.", forbids=("reassures",))
    with open_store(resolve({"home": workspace}).settings) as store:
        li, wu = (users.add_user(store, name, "clinician", password=None, actor="test").user_id for name in ("li", "wu"))
        entry = codebook.propose(store, CodebookEntry(content=content, author=li), actor="test")
        trial = CodebookTrial(
            revision_id=entry.revision_id, codebook=codebook.live(store).sha256, model="m", verdict="same", actor=wu
        )
        codebook.approve(store, entry.revision_id, by=wu, check=codebook.ApprovalCheck(codebook.save_trial(store, trial)))
    prompts: list[tuple[Message, ...]] = []

    def calms(self: TorchGenerator, asked: list[tuple[Message, ...]], **more: Any) -> list[Completion]:
        prompts.extend(asked)
        text = "Don't worry, it is harmless. Rest at home."
        return [Completion(prompt_id="p", model="m", text=text, finish_reason="stop", n_tokens=9) for _ in asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TorchGenerator, "__call__", calms)
        done = evaluate(workspace, "--model", "models/full/random", *live)
        assert done.exit_code == 0, done.output
    assert [("No comfort." in prompt[0].content) for prompt in prompts] == [False, False, True, True]
    texts = [row["text"] for path in sorted((workspace / "reports/eval/u").rglob("*.jsonl")) for row in jsonl.read(path)]
    assert sorted(texts) == ["Call 120 now.\nRest at home."] * 2 + ["Don't worry, it is harmless. Rest at home."] * 2
