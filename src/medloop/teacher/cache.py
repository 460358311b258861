"""Judgements on disk, append-only, so that no request is paid for twice.

The key is the hash of the request (model, template version, parameters, scrubbed question and answer) and of the model that
served it. A judgement counts only after its line is on the disk; lines that finish together share one fsync.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from medloop.contracts import Contract, Judgement, canonical_json, sha256_id
from medloop.store.files import jsonl

JUDGEMENTS = "teacher_judgements.jsonl"


def key_of(request: str, served_model: str) -> str:
    return sha256_id(canonical_json([request, served_model]))


class Appender:
    """Appends rows to one file, durably, many per write; `add` returns when the row is on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[tuple[Mapping[str, Any] | Contract, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    def put(self, row: Mapping[str, Any] | Contract) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((row, done))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._drain())
        return done

    async def add(self, row: Mapping[str, Any] | Contract) -> None:
        await asyncio.shield(self.put(row))

    async def flush(self) -> None:
        """Wait until every row is on the disk; raises what a write raised."""
        if self._writer is not None:
            await self._writer
        if self._failure is not None:
            raise self._failure

    async def _drain(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(jsonl.append, self.path, [row for row, _ in batch])
            except Exception as error:  # passed on to everybody who waits
                self._failure = error
            for _, done in batch:
                if done.done():
                    continue
                if self._failure is None:
                    done.set_result(None)
                else:
                    done.set_exception(self._failure)
                    done.exception()  # mark it as retrieved: nobody has to wait for it


class JudgementCache:
    """The judgements by key; `add` stores one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, list[Judgement]] = {}
        if path.exists():
            for judgement in jsonl.read(path, Judgement):
                self.known.setdefault(judgement.key, []).append(judgement)
        self._file = Appender(path)

    def find(self, request: str, served: Iterable[str], fingerprints: frozenset[str]) -> Judgement | None:
        """The newest judgement of this request by one of these models; with `fingerprints`, only of those versions."""
        for model in served:
            for judgement in reversed(self.known.get(key_of(request, model), [])):
                if not fingerprints or judgement.fingerprint is None or judgement.fingerprint in fingerprints:
                    return judgement
        return None

    def usual_fingerprint(self, model: str, template_version: str) -> str | None:
        """The version of most judgements here: a new one does not become the standard by answering once."""
        every = (judgement for judgements in self.known.values() for judgement in judgements)
        same = (j for j in every if j.model == model and j.template_version == template_version)
        counts = Counter(judgement.fingerprint for judgement in same if judgement.fingerprint)
        return counts.most_common(1)[0][0] if counts else None

    async def add(self, judgement: Judgement) -> None:
        await self._file.add(judgement)
        self.known.setdefault(judgement.key, []).append(judgement)

    async def flush(self) -> None:
        await self._file.flush()
