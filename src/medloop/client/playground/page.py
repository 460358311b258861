"""The page of the playground, run by the Python of `.venv-playground`: `python -P page.py` with its settings as JSON on stdin.

Two versions side by side, the safety notice, sampling, a batch from a file, and a button that sends an answer to review.
It binds to the loopback interface, sends no analytics, makes no share link and has no access to the store.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ |= {
    "GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SHARE": "False", "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_MCP_SERVER": "False", "DO_NOT_TRACK": "1",
}  # fmt: skip
sys.path.insert(0, str(Path(__file__).parent))

import fastapi
import gradio as gr
import uvicorn
from calls import (  # type: ignore[import-not-found]
    Assistant,
    PlaygroundAnswer,
    PlaygroundError,
    SamplingKnobs,
    read_questions,
    write_answers,
)

NOTICE = (
    "**For testing, not for patients.** Answers of a model can be wrong and can harm. In an emergency call the emergency number "
    "(120 or 999 in China, 112 in Europe, 911 in the USA). Write no names, numbers or dates of real persons.\n\n"
    "**仅供测试，不用于诊疗。** 模型的回答可能有误，可能造成伤害。"
    "紧急情况请立即拨打 120。请勿输入真实患者的姓名、证件号、电话或日期。"
)
CSS = "#safety-notice {border-left: 6px solid #b3261e; padding: 0.5rem 1rem; background: #fdecea; color: #410e0b}"
HEADERS = {
    "x-frame-options": "DENY", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer",
    # Gradio's own page needs inline scripts and styles; nothing may be loaded from, or sent to, another host.
    "content-security-policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; connect-src 'self' ws: wss:; "
    "frame-ancestors 'none'; form-action 'self'; base-uri 'self'",
}  # fmt: skip


def build(assistant: Assistant, folder: Path) -> gr.Blocks:
    versions = assistant.versions()
    first, second = versions[0] if versions else None, versions[-1] if versions else None
    with gr.Blocks(title="medloop playground", analytics_enabled=False) as page:
        gr.Markdown("# medloop playground")
        gr.Markdown(NOTICE, elem_id="safety-notice")
        with gr.Accordion("Sampling", open=False):
            temperature = gr.Slider(0, 2, 0, step=0.05, label="temperature")
            top_p = gr.Slider(0.05, 1, 1, step=0.05, label="top_p")
            max_tokens = gr.Slider(1, 1024, 128, step=1, label="max_tokens")
            seed = gr.Number(None, precision=0, minimum=0, label="seed (empty: none)")
        knobs = [temperature, top_p, max_tokens, seed]
        with gr.Tab("Side by side"):
            question = gr.Textbox(label="Question", lines=3, max_length=20_000, elem_id="question")
            ask = gr.Button("Ask both", variant="primary", elem_id="ask")
            with gr.Row():
                left = _column(assistant, "A", versions, first)
                right = _column(assistant, "B", versions, second)
            refresh = gr.Button("Read the list of versions again", size="sm")
            refresh.click(lambda: [gr.update(choices=_versions(assistant))] * 2, None, [left["version"], right["version"]])
            for side in (left, right):
                gr.on(
                    [ask.click, question.submit],
                    lambda *given: _ask(assistant, *given),
                    [side["version"], question, *knobs], [side["answer"], side["about"], side["state"]],
                )  # fmt: skip
        with gr.Tab("Batch"):
            gr.Markdown("A JSONL, CSV or text file with one question per line or in the column `question`; at most 500.")
            upload = gr.File(label="Questions", file_types=[".jsonl", ".json", ".csv", ".tsv", ".txt"], type="filepath")
            chosen = gr.Dropdown(versions, value=versions[:1], multiselect=True, label="Versions")
            run = gr.Button("Predict", variant="primary")
            state = gr.Markdown()
            table = gr.Dataframe(label="Answers", wrap=True, interactive=False)
            result = gr.File(label="Result (CSV)", interactive=False)
            run.click(
                lambda *given: (yield from _batch(assistant, folder, *given)), [upload, chosen, *knobs], [state, table, result]
            )
    return page


def _column(assistant: Assistant, side: str, versions: list[str], value: str | None) -> dict[str, Any]:
    with gr.Column():
        version = gr.Dropdown(versions, value=value, label=f"Version {side}", elem_id=f"version-{side.lower()}")
        answer = gr.Textbox(label=f"Answer {side}", lines=10, interactive=False, elem_id=f"answer-{side.lower()}")
        about = gr.Markdown(elem_id=f"about-{side.lower()}")
        reason = gr.Textbox(label=f"What is wrong with answer {side}?", max_length=2000, elem_id=f"reason-{side.lower()}")
        review = gr.Button(f"Send answer {side} to review", elem_id=f"review-{side.lower()}")
        outcome = gr.Markdown(elem_id=f"outcome-{side.lower()}")
    state = gr.State(None)
    review.click(lambda given, said: _review(assistant, given, said), [state, reason], [outcome])
    return {"version": version, "answer": answer, "about": about, "state": state}


def _versions(assistant: Assistant) -> list[str]:
    try:
        return list(assistant.versions())
    except PlaygroundError as error:
        raise gr.Error(str(error), print_exception=False) from None


def _ask(
    assistant: Assistant, version: str | None, question: str, *knobs: Any
) -> tuple[str, str, PlaygroundAnswer | None]:  # fmt: skip
    try:
        if version is None:
            raise PlaygroundError("Choose a version first.")
        answer = assistant.ask(version, question, _sampling(*knobs))
    except PlaygroundError as error:
        return "", f"**No answer:** {error}", None
    tokens = f", {answer.tokens} tokens" if answer.tokens is not None else ""
    stored = f" Trace `{answer.inference_id}`." if answer.inference_id else ""
    return answer.text, f"Answered by `{answer.version}` in {answer.seconds:.1f} s{tokens}.{stored}", answer


def _review(assistant: Assistant, answer: PlaygroundAnswer | None, reason: str) -> str:
    if answer is None:
        return "Ask a question first."
    try:
        return f"In the review queue as `{assistant.send_to_review(answer, reason or '')}`."
    except PlaygroundError as error:
        return f"**Not sent:** {error}"


def _batch(
    assistant: Assistant, folder: Path, upload: str | None, versions: list[str], *knobs: Any
) -> Iterator[tuple[str, Any, Any]]:  # fmt: skip
    """Rows appear as they are answered."""
    try:
        if not upload or not versions:
            raise PlaygroundError("Choose a file and at least one version.")
        questions = read_questions(Path(upload))
    except PlaygroundError as error:
        yield f"**{error}**", None, None
        return
    rows: list[list[str]] = []
    header = ["question", *versions]
    for row in assistant.batch(versions, questions, _sampling(*knobs)):
        rows.append(row)
        yield f"{len(rows)} of {len(questions)}", {"headers": header, "data": rows}, None
    target = Path(tempfile.mkdtemp(dir=folder)) / "answers.csv"
    write_answers(target, versions, rows)
    yield f"{len(rows)} questions answered.", {"headers": header, "data": rows}, str(target)


def _sampling(temperature: float, top_p: float, max_tokens: float, seed: float | None) -> SamplingKnobs:
    return SamplingKnobs(float(temperature), float(top_p), int(max_tokens), None if seed is None else int(seed))


class Hardened:
    """Adds the headers to every answer, and refuses hosts other than this machine's (DNS rebinding)."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").rpartition(":")[0]
            if host not in ("127.0.0.1", "localhost", "[::1]"):
                await send({"type": "http.response.start", "status": 421, "headers": [(b"content-length", b"0")]})
                await send({"type": "http.response.body", "body": b""})
                return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        await self.app(scope, receive, send_with_headers)


def main() -> None:
    given = json.loads(sys.stdin.readline())
    assistant = Assistant(given["url"], given["key"], tuple(given["servers"]))
    with tempfile.TemporaryDirectory(prefix="medloop-playground-") as folder:
        os.environ["GRADIO_TEMP_DIR"] = folder
        try:
            page = build(assistant, Path(folder))
        except PlaygroundError as error:
            sys.exit(f"The playground cannot start: {error}")
        page.queue(default_concurrency_limit=4, max_size=64, api_open=False)
        with socket.create_server(("127.0.0.1", given["port"])) as listening:
            sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}\n")
            sys.stdout.flush()
            serve(page, listening)


def serve(page: gr.Blocks, listening: socket.socket) -> None:
    """Until the command that started it ends, which closes the pipe, or somebody presses Ctrl-C."""
    app = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    gr.mount_gradio_app(app, page, path="/", show_error=False, max_file_size="5mb", ssr_mode=False, css=CSS, footer_links=[])
    server = uvicorn.Server(uvicorn.Config(Hardened(app), log_level="warning", access_log=False, lifespan="on"))

    def end_with_the_pipe() -> None:
        sys.stdin.read()
        server.should_exit = server.force_exit = True

    threading.Thread(target=end_with_the_pipe, daemon=True).start()
    server.run(sockets=[listening])


if __name__ == "__main__":
    main()
