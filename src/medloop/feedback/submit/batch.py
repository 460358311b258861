"""Many records in one request: JSON Lines, each line its own result, so that one bad line costs nothing but itself.

    {"kind": "feedback", "trace_id": "…", "thumb": "up"}
    {"kind": "preference", "prompt": "…", "response_a": "…", "response_b": "…", "preferred": "a"}

With an idempotency key each line has the key `KEY/NUMBER`: the same file sent again stores only what is missing. Lines are handed
to the writer a window at a time, so that an import takes turns with single requests and never fills their queue.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from medloop.errors import InputError, MedloopError, NoSpaceError
from medloop.feedback.submit.bodies import KINDS, Sent
from medloop.feedback.submit.submit import Sender, hand_in
from medloop.store.db import Store
from medloop.store.records.group_commit import GroupCommitWriter
from medloop.store.records.write_request import OverloadedError

MOST_LINES = 2000
WINDOW = 64
TRIES = 5  # for a window that meets a full queue
EXAMPLE = (
    '{"kind": "feedback", "trace_id": "0199c0de-…", "thumb": "up"}\n{"kind": "feedback", "trace_id": "0199c0de-…", "rating": 2}\n'
)

Json = dict[str, Any]


@dataclass(frozen=True)
class Line:
    number: int
    body: Sent | None
    problem: str = ""


def parse(data: bytes) -> list[Line]:
    """The lines, each a body or a problem; empty lines are passed over."""
    if not data.strip():
        raise InputError("The body has no lines", "Send one JSON object per line")
    given = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    if len(given) > MOST_LINES:
        raise InputError(f"The body has {len(given)} lines, {MOST_LINES} at most fit", "Send it in parts")
    return [_line(number, raw) for number, raw in given]


async def store_all(
    writer: GroupCommitWriter, store: Store, lines: Sequence[Line], sender: Sender, *, key: str | None
) -> list[Json]:
    """Store every line that fits; one result per line, in their order."""
    results: list[Json] = []
    for start in range(0, len(lines), WINDOW):
        window = lines[start : start + WINDOW]
        results += await asyncio.gather(*(_store(writer, store, line, sender, key) for line in window))
    return results


def summed(results: Sequence[Json]) -> dict[str, int]:
    codes = [result["status"] for result in results]
    done = {"stored": codes.count(201), "repeated": codes.count(200)}
    return {**done, "failed": len(codes) - sum(done.values())}


def _line(number: int, raw: bytes) -> Line:
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        return Line(number, None, "This line is not JSON")
    if not isinstance(said, dict) or said.get("kind") not in list(KINDS):
        return Line(number, None, f"'kind' must be one of {', '.join(KINDS)}")
    kind = KINDS[said.pop("kind")]
    try:
        return Line(number, kind.model_validate(said))
    except ValidationError as error:
        return Line(number, None, explain(error))


def explain(error: ValidationError) -> str:
    """The fields and what is wrong with them; no value of the sender's is repeated."""
    parts = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(str(part)[:64] for part in problem["loc"]) or "body"
        parts.append(f"{place if place.isprintable() else '?'}: {problem['msg'].lower()}")
    return "; ".join(parts[:5])


async def _store(writer: GroupCommitWriter, store: Store, line: Line, sender: Sender, key: str | None) -> Json:
    if line.body is None:
        return {"line": line.number, "status": 422, "error": line.problem}
    try:
        submission = hand_in(store, line.body, sender, key=None if key is None else f"{key}/{line.number}")
        for tries in range(1, TRIES + 1):
            try:
                stored = await writer.submit(submission)
                break
            except OverloadedError:
                if tries == TRIES:
                    raise
                await asyncio.sleep(0.1 * 2**tries)
    except MedloopError as error:
        code = 422 if isinstance(error, InputError) else 507 if isinstance(error, NoSpaceError) else 503
        return {"line": line.number, "status": code, "error": str(error)}
    return {"line": line.number, "status": 200 if stored.replayed else 201, **stored.answer}
