"""RAGAS in its own environment: rows go in as JSON, scores come out line by line. Its packages clash with ours.

    judge = RagasJudge(Path(".venv-ragas/bin/python"), "http://127.0.0.1:8000/v1", model="judge", embedding_model="bge-m3")
    judge.score([RagasRow("c1", question, answer, contexts, reference)])      # {"c1": {"faithfulness": 0.8, ...}}

A score that does not arrive is a reason in words. The environment is made by `make ragas-env`.
"""

import json
import math
import os
import queue
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from medloop.errors import ConfigError
from medloop.isolation import isolated

WORKER = Path(__file__).with_name("ragas_worker.py")
METRICS = ("faithfulness", "answer_relevancy", "context_precision", "context_recall")
NEEDS_REFERENCE = ("context_precision", "context_recall")
START_S = 180.0  # importing RAGAS takes a while on a busy machine
END_S = 10  # how long it may take to end after its last line
MAKE = "Make it with: make ragas-env (or name another one: MEDLOOP_RAGAS__PYTHON)"

Outcome = float | str  # a score, or why there is none


@dataclass(frozen=True)
class RagasRow:
    """A question, the model's answer, the passages it could use, and the reference answer where there is one."""

    id: str
    question: str
    answer: str
    contexts: tuple[str, ...]
    reference: str | None = None


@dataclass(frozen=True)
class RagasJudge:
    """The judge behind a URL that speaks OpenAI's chat completions and embeddings."""

    python: Path
    url: str
    model: str
    embedding_model: str
    key: str = ""
    timeout_s: float = 120.0
    in_flight: int = 4

    def check(self) -> None:
        """ConfigError with what to do, before any model answers."""
        if not self.url:
            raise ConfigError("RAGAS needs a judge, and the setting ragas.url is empty", "Set it: MEDLOOP_RAGAS__URL=http://...")
        if not self.python.is_file():
            raise ConfigError(f"RAGAS needs an environment of its own, and {self.python} does not exist", MAKE)

    @property
    def is_local(self) -> bool:
        """Whether nothing leaves this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def score(self, rows: Sequence[RagasRow]) -> dict[str, dict[str, Outcome]]:
        """For each row by id, a score or a reason for each metric."""
        outcomes: dict[str, dict[str, Outcome]] = {row.id: {} for row in rows}
        ending = "the RAGAS process ended early"
        for line in self._lines(rows):
            if "ending" in line:
                ending = str(line["ending"])
            elif line.get("id") in outcomes and line.get("metric") in METRICS:
                outcomes[line["id"]][line["metric"]] = _outcome(line)
        for row in rows:
            for name in METRICS:
                no_reference = name in NEEDS_REFERENCE and not row.reference
                outcomes[row.id].setdefault(name, "the case has no reference answer" if no_reference else ending)
        return outcomes

    def _request(self, rows: Sequence[RagasRow]) -> bytes:
        fields = {
            "url": self.url, "key": self.key, "model": self.model, "embedding_model": self.embedding_model,
            "timeout_s": self.timeout_s, "in_flight": self.in_flight,
            "rows": [{"id": r.id, "question": r.question, "answer": r.answer, "contexts": r.contexts, "reference": r.reference}
                     for r in rows],
        }  # fmt: skip
        return json.dumps(fields).encode()

    def _lines(self, rows: Sequence[RagasRow]) -> Iterator[Mapping[str, Any]]:
        """The lines of the process; the last one says how it ended. It is killed when nothing comes for too long."""
        command = [str(self.python), "-P", str(WORKER)]
        environ = {**isolated(os.environ), "RAGAS_DO_NOT_TRACK": "true", "PYTHONPATH": ""}
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ
        )  # fmt: skip
        lines: queue.Queue[bytes | None] = queue.Queue()
        pump = threading.Thread(target=_pump, args=(process, self._request(rows), lines), daemon=True)
        pump.start()
        last = time.monotonic()
        try:
            while (line := lines.get(timeout=max(START_S, 4 * self.timeout_s))) is not None:
                last = time.monotonic()
                yield _parsed(line)
            code = process.wait(END_S)
            yield {"ending": "RAGAS gave no score" if code == 0 else f"the RAGAS process ended with code {code}"}
        except subprocess.TimeoutExpired:  # it has written everything; connections of a judge that hangs keep it
            yield {"ending": f"the RAGAS process did not end within {END_S} s and was ended"}
        except queue.Empty:
            yield {"ending": f"the RAGAS process was silent for {time.monotonic() - last:.0f} s and was ended"}
        finally:
            process.kill()
            process.wait()
            pump.join(10)  # it has read to the end


def _pump(process: subprocess.Popen[bytes], request: bytes, lines: "queue.Queue[bytes | None]") -> None:
    assert process.stdin and process.stdout
    try:
        process.stdin.write(request)
        process.stdin.close()
    except OSError:  # it ended before it read everything; its code says so
        pass
    with process.stdout:
        for line in process.stdout:
            lines.put(line)
    lines.put(None)


def _outcome(line: Mapping[str, Any]) -> Outcome:
    value = line.get("value")
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return str(line.get("missing", "RAGAS gave no number"))


def _parsed(line: bytes) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}
