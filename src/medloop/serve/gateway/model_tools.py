"""Tools that the model itself asks for, in OpenAI's form: they run here, and the model is asked again with their results.

Only where `gateway.model_tools` is on. The tools of serve/agent/tools.py read tables and compute, so a document that talks a
model into a call gains nothing. Arguments are checked, results are data, every call is in the trace. After MOST_ROUNDS the
model is asked without tools, so that it answers.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from medloop.serve.agent.agent_loop import defused
from medloop.serve.agent.tools import Tool, ToolCall, call
from medloop.serve.gateway.backends import Deltas
from medloop.serve.gateway.wire import Delta, Json, clean

MOST_ROUNDS = 3
MOST_CALLS = 4  # of one round
LONGEST_ARGUMENTS = 4_000
DEEPEST_ARGUMENTS = 64  # lists and objects in them; the tools need few


def offered(tools: Mapping[str, Tool] | None) -> Json:
    """What a request says of the tools."""
    return {"tools": [tool.schema for tool in tools.values()]} if tools else {}


def asked_calls(message: Json) -> list[Json]:
    """The calls that a message asks for; what is not one is passed over."""
    found = message.get("tool_calls")
    calls = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    return [entry for entry in calls if isinstance(entry.get("function"), dict) and entry["function"].get("name")][:MOST_CALLS]


def run_calls(tools: Mapping[str, Tool], asked: Sequence[Json]) -> tuple[list[Json], tuple[ToolCall, ...]]:
    """The messages that tell the model what came of its calls, and the records for the trace."""
    cleaned = [_cleaned(number, entry) for number, entry in enumerate(asked)]
    messages: list[Json] = [{"role": "assistant", "content": "", "tool_calls": cleaned}]
    done = []
    for entry in cleaned:
        made = call(tools, entry["function"]["name"], _arguments(entry["function"]["arguments"]))
        told = made.result if made.error is None else {"error": made.error}
        messages.append({"role": "tool", "tool_call_id": entry["id"], "content": defused(json.dumps(told, ensure_ascii=False))})
        done.append(made)
    return messages, tuple(done)


def _cleaned(number: int, entry: Json) -> Json:
    function = entry["function"]
    name, arguments = clean(str(function["name"]))[:64], clean(str(function.get("arguments") or "{}"))
    call_id = clean(str(entry.get("id") or f"call_{number}"))[:64]
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments[:LONGEST_ARGUMENTS]}}


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_finite, parse_float=_finite)
        value = json.loads(clean(json.dumps(value, ensure_ascii=False)))  # halves of characters, written as escapes
    except (ValueError, RecursionError):
        value = None
    deep = text.count("[") + text.count("{") > DEEPEST_ARGUMENTS
    return value if isinstance(value, dict) and not deep else {"unreadable": True}


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError("not a number that JSON knows")
    return number


async def calls_of_stream(deltas: Deltas) -> tuple[list[Json], Deltas]:
    """The calls that a stream asks for before its first word, or (none and) the stream as it was."""
    read: list[Delta] = []
    parts: dict[int, Json] = {}
    async for delta in deltas:
        read.append(delta)
        for fragment in delta.calls:
            _join(parts, fragment)
        if delta.text or delta.reasoning:
            return [], _resumed(read, deltas)
    calls = asked_calls({"tool_calls": [parts[index] for index in sorted(parts)]})
    return calls, _resumed(read, deltas)


def _join(parts: dict[int, Json], fragment: Json) -> None:
    """A piece of a call: the name comes first, the arguments in pieces."""
    index = fragment.get("index")
    entry = parts.setdefault(index if isinstance(index, int) else len(parts), {"function": {"name": "", "arguments": ""}})
    entry["id"] = fragment.get("id") or entry.get("id")
    function = fragment.get("function")
    if isinstance(function, dict):
        for name in ("name", "arguments"):
            entry["function"][name] += str(function.get(name) or "")


async def _resumed(read: Sequence[Delta], rest: Deltas) -> AsyncGenerator[Delta]:
    async with aclosing(rest):
        for delta in read:
            yield delta
        async for delta in rest:
            yield delta
