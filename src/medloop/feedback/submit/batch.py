"""Many records in one request: JSON Lines, a result for each line, so that one bad line affects no other.

    {"kind": "feedback", "trace_id": "…", "thumb": "up"}
    {"kind": "preference", "prompt": "…", "response_a": "…", "response_b": "…", "preferred": "a"}

With an idempotency key each line has the key `KEY/NUMBER`: the same file sent again stores only what is missing. Lines go to the
writer a window at a time, so that an import takes turns with single requests and never fills their queue.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from medloop.errors import InputError, MedloopError, NoSpaceError
from medloop.feedback.submit.bodies import BODY_OF_KIND, SubmissionBody
from medloop.feedback.submit.sender import Sender
from medloop.feedback.submit.submit import prepare_submission
from medloop.knobs import problem_text
from medloop.store.db import Store
from medloop.store.records.group_commit import GroupCommitWriter
from medloop.store.records.write_request import OverloadedError

MAX_LINES = 2000
WINDOW = 64
ATTEMPTS = 5  # while the writer's queue is full
EXAMPLE = (
    '{"kind": "feedback", "trace_id": "0199c0de-…", "thumb": "up"}\n{"kind": "feedback", "trace_id": "0199c0de-…", "rating": 2}\n'
)

Json = dict[str, Any]


@dataclass(frozen=True)
class ImportLine:
    number: int
    body: SubmissionBody | None
    problem: str = ""


def parse(data: bytes) -> list[ImportLine]:
    """The lines, each a body or a problem; empty lines are skipped."""
    if not data.strip():
        raise InputError("The body has no lines", "Send one JSON object per line")
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    if len(lines) > MAX_LINES:
        raise InputError(f"The body has {len(lines)} lines; the limit is {MAX_LINES}", "Send it in parts")
    return [_parse_line(number, line) for number, line in lines]


async def store_all(
    writer: GroupCommitWriter, store: Store, lines: Sequence[ImportLine], sender: Sender, *, key: str | None
) -> list[Json]:
    """Store every valid line; one result per line, in order."""
    results: list[Json] = []
    for start in range(0, len(lines), WINDOW):
        window = lines[start : start + WINDOW]
        results += await asyncio.gather(*(_store(writer, store, line, sender, key) for line in window))
    return results


def summary(results: Sequence[Json]) -> dict[str, int]:
    codes = [result["status"] for result in results]
    counts = {"stored": codes.count(201), "repeated": codes.count(200)}
    return {**counts, "failed": len(codes) - sum(counts.values())}


def _parse_line(number: int, line: bytes) -> ImportLine:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return ImportLine(number, None, "This line is not JSON")
    if not isinstance(values, dict) or values.get("kind") not in list(BODY_OF_KIND):
        return ImportLine(number, None, f"'kind' must be one of {', '.join(BODY_OF_KIND)}")
    kind = BODY_OF_KIND[values.pop("kind")]
    try:
        return ImportLine(number, kind.model_validate(values))
    except ValidationError as error:
        return ImportLine(number, None, _explain(error))


def _explain(error: ValidationError) -> str:
    """The fields and what is wrong with them; no value of the sender is repeated."""
    problems = []
    for problem in error.errors(include_url=False, include_input=False)[:5]:
        field = ".".join(str(part)[:64] for part in problem["loc"]) or "body"
        problems.append(f"{field if field.isprintable() else '?'}: {problem_text(problem)}")
    return "; ".join(problems)


async def _store(writer: GroupCommitWriter, store: Store, line: ImportLine, sender: Sender, key: str | None) -> Json:
    if line.body is None:
        return {"line": line.number, "status": 422, "error": line.problem}
    try:
        submission = prepare_submission(store, line.body, sender, key=None if key is None else f"{key}/{line.number}")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                stored = await writer.submit(submission)
                break
            except OverloadedError:
                if attempt == ATTEMPTS:
                    raise
                await asyncio.sleep(0.1 * 2**attempt)
    except MedloopError as error:
        code = 422 if isinstance(error, InputError) else 507 if isinstance(error, NoSpaceError) else 503
        return {"line": line.number, "status": code, "error": str(error)}
    return {"line": line.number, "status": 200 if stored.replayed else 201, **stored.answer}
