"""What the playground asks over HTTP: answers from anything that speaks OpenAI's protocol, and a review from medloop's API.

    assistant = Assistant("http://127.0.0.1:8000", key)
    assistant.versions()                                    # ["medloop", "clinic-7b@3"]
    answer = assistant.ask("medloop", "I cough.", SamplingKnobs())
    assistant.send_to_review(answer, "misses the red flag")

Imported by the process with Gradio, which has neither medloop nor its store: only the key opens anything.
"""

from __future__ import annotations

import csv
import io
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

QUESTION_FIELDS = ("question", "prompt", "user_query", "input", "query", "text")
MOST_ROWS = 500  # of one batch
MOST_BYTES = 5 * 2**20
LONGEST_QUESTION = 20_000  # characters
AGENT = "playground"


class PlaygroundError(Exception):
    """What the page says to its reader."""


@dataclass(frozen=True)
class SamplingKnobs:
    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 256
    seed: int | None = None


@dataclass(frozen=True)
class PlaygroundAnswer:
    """`inference_id` is that of the stored trace; empty where the server stores none."""

    question: str
    text: str
    version: str
    inference_id: str = ""
    seconds: float = 0.0
    tokens: int | None = None
    snapshot: str = ""


@dataclass
class Assistant:
    """The API of medloop, and further servers of models beside it."""

    url: str
    key: str
    servers: Sequence[str] = ()
    timeout_s: float = 120.0
    _of_server: dict[str, str] = field(default_factory=dict)  # version -> address, of the further servers

    def versions(self) -> list[str]:
        """What can be asked: the live assistant first, then what the further servers serve."""
        try:
            names = self._models(self.url, self.key)
        except PlaygroundError:
            if not self.servers:
                raise
            names = []  # an API without an assistant; the servers can still be compared
        self._of_server.clear()
        for server in self.servers:
            for name in self._models(server, ""):
                label = name if name not in names else f"{name} ({httpx.URL(server).netloc.decode()})"
                self._of_server[label] = server
                names.append(label)
        return names

    def ask(self, version: str, question: str, sampling: SamplingKnobs) -> PlaygroundAnswer:
        if not question.strip():
            raise PlaygroundError("Write a question first.")
        server = self._of_server.get(version)
        model = version if server is None else version.split(" (")[0]
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": question[:LONGEST_QUESTION]}]}
        body |= {name: value for name, value in asdict(sampling).items() if value is not None}
        started = time.monotonic()
        response = self._request("POST", (server or self.url) + "/v1/chat/completions", "" if server else self.key, body)
        answer = response.json()
        try:
            text = str(answer["choices"][0]["message"]["content"] or "")
        except (KeyError, IndexError, TypeError):
            raise PlaygroundError("The server sent something that is not an answer.") from None
        ours = answer.get("medloop") if isinstance(answer.get("medloop"), dict) else {}
        usage = answer.get("usage") or {}
        return PlaygroundAnswer(
            question, text, str(ours.get("version") or answer.get("model") or version), str(ours.get("inference_id") or ""),
            time.monotonic() - started, usage.get("completion_tokens"), str(ours.get("snapshot") or ""),
        )  # fmt: skip

    def send_to_review(self, answer: PlaygroundAnswer, reason: str) -> str:
        """The answer in the review queue, with what the reader said about it; returns the id of the stored feedback."""
        trace_id = answer.inference_id or self._log(answer)
        said = {"trace_id": trace_id, "thumb": "down", "comments": reason.strip()[:2000] or "Sent to review from the playground."}
        stored = self._request("POST", self.url + "/api/v1/rlhf/feedback", self.key, said).json()
        return str(stored.get("feedback_id", ""))

    def batch(self, versions: Sequence[str], questions: Sequence[str], sampling: SamplingKnobs) -> Iterator[list[str]]:
        """One row per question: the question, then the answer of each version or why there is none."""
        for question in questions:
            row = [question]
            for version in versions:
                try:
                    row.append(self.ask(version, question, sampling).text)
                except PlaygroundError as error:
                    row.append(f"[no answer: {error}]")
            yield row

    def _log(self, answer: PlaygroundAnswer) -> str:
        """A trace of an answer that medloop's own gateway did not give."""
        turns = [{"role": "user", "content": answer.question}, {"role": "assistant", "content": answer.text}]
        body = {"session_id": f"playground-{uuid.uuid4()}", "agent_name": AGENT, "model_version": _clear(answer.version)}
        stored = self._request("POST", self.url + "/api/v1/traces", self.key, {**body, "messages": turns})
        return str(stored.json()["trace_id"])

    def _models(self, url: str, key: str) -> list[str]:
        data = self._request("GET", url + "/v1/models", key).json().get("data", [])
        return [str(entry["id"]) for entry in data if isinstance(entry, dict) and entry.get("id")]

    def _request(self, method: str, url: str, key: str, body: dict[str, Any] | None = None) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            with httpx.Client(timeout=self.timeout_s, follow_redirects=False) as http:
                response = http.request(method, url, headers=headers, json=body)
        except httpx.TimeoutException:
            raise PlaygroundError("The server did not answer in time.") from None
        except httpx.TransportError:
            raise PlaygroundError("The server cannot be reached.") from None
        if response.status_code >= 300:
            raise PlaygroundError(_refusal(response))
        return response


def read_questions(path: Path) -> list[str]:
    """Questions of a JSONL, CSV or text file; one per line, or in a column such as `question`."""
    if path.stat().st_size > MOST_BYTES:
        raise PlaygroundError(f"The file is larger than {MOST_BYTES // 2**20} MiB; 'medloop predict' takes files of any size.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise PlaygroundError("The file is not UTF-8.") from None
    if path.suffix in (".jsonl", ".json"):
        questions = [_question(json_line) for json_line in _json_rows(text)]
    elif path.suffix in (".csv", ".tsv"):
        rows = csv.DictReader(io.StringIO(text), delimiter="\t" if path.suffix == ".tsv" else ",")
        questions = [_question(dict(row)) for row in rows]
    else:
        questions = text.splitlines()
    questions = [question.strip() for question in questions if question and question.strip()]
    if not questions:
        raise PlaygroundError(f"No questions found; name the column one of {', '.join(QUESTION_FIELDS)}.")
    if len(questions) > MOST_ROWS:
        raise PlaygroundError(f"The file has {len(questions)} questions; at most {MOST_ROWS} here. Use 'medloop predict'.")
    return questions


def write_answers(path: Path, versions: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A CSV; a text that a spreadsheet would take for a formula gets an apostrophe before it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", *versions])
        writer.writerows([_plain(cell) for cell in row] for row in rows)


def _plain(cell: str) -> str:
    return "'" + cell if cell[:1] in "=+-@\t\r" else cell


def _json_rows(text: str) -> list[Any]:
    try:
        if text.lstrip().startswith("["):
            return list(json.loads(text))
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError:
        raise PlaygroundError("The file is not JSON Lines.") from None


def _question(row: Any) -> str:
    if isinstance(row, str):
        return row
    found = (row.get(name) for name in QUESTION_FIELDS) if isinstance(row, dict) else iter(())
    return next((value for value in found if isinstance(value, str)), "")


def _refusal(response: httpx.Response) -> str:
    """What the server says, as far as it is medloop's or OpenAI's form of an error."""
    try:
        error = response.json().get("error")
        message = error.get("message") if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        message = None
    if response.status_code == 401:
        return "The API key was refused. Make one with: medloop api keys new NAME --scope chat --scope feedback:write"
    return str(message)[:300] if message else f"The server answered {response.status_code}."


def _clear(version: str) -> str:
    """A version as a name that may be stored in clear."""
    name = "".join(char if char.isalnum() or char in "._:@/+=-" else "-" for char in version)[:128]
    return name if name[:1].isalnum() else f"model-{name}"[:128]
