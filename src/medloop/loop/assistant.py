"""The live assistant, put together: the gateway of serve/, the detectors of reward/, the traces of feedback/.

    async with open_assistant(store, writer, settings) as gateway: ...       # for as long as the API runs

`parts_of` is where codebook, documents and experiments join an answer; each is a seam of contracts/assistant.py, and None where
the workspace has none.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from medloop.contracts import Message, Trace
from medloop.contracts.assistant import PassagesFound, Route, RulesFound
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.errors import ConfigError, explain_os_errors
from medloop.feedback.submit.live_trace import prepare_traces
from medloop.lexicon.language import detect_language
from medloop.loop.assistant_guards import calm_guard, guard_hash, input_guards, is_emergent, output_guards
from medloop.loop.codebook import rules_for
from medloop.loop.deploy import route_at
from medloop.loop.experiment import chooser
from medloop.loop.knowledge import KnowledgeSearch
from medloop.loop.model_servers import backend_pool
from medloop.loop.rule_guard import rule_guard
from medloop.models.codebook_prompt import prompt_texts, rules_text
from medloop.reward.detect.urgency import urgency
from medloop.serve.agent.agent_loop import fenced, tool_part
from medloop.serve.agent.memory import EpisodeMemory
from medloop.serve.agent.tools import ToolCall, call_wanted, clinical_tools
from medloop.serve.gateway.answer_plan import AssistantParts
from medloop.serve.gateway.backends import BackendAddress
from medloop.serve.gateway.gateway import Gateway
from medloop.serve.gateway.trace_counts import counting
from medloop.serve.gateway.trace_queue import TraceQueue
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records.group_commit import GroupCommitWriter
from medloop.store.records.routes import live_route, route_number

ROUTE_S = 0.25  # how long a look at the route counts
LONGEST_PROMPT = 20_000


class RouteCache:
    """The live route; the store is asked for the number of the newest change, and for the route only when that is another one."""

    def __init__(self, store: Store, site: str = DEFAULT_SITE) -> None:
        self._store, self._number, self._looked, self._site = store, -1, float("-inf"), site
        self._route: Route | None = None
        self.challenger: Route | None = None
        self._lock = threading.Lock()  # else an older look could end last and stay

    async def get(self) -> Route | None:
        if time.monotonic() - self._looked < ROUTE_S:
            return self._route
        return await self.refresh()

    async def refresh(self) -> Route | None:
        return await asyncio.to_thread(self._read)

    def _read(self) -> Route | None:
        with self._lock:
            looked = time.monotonic()
            # A block takes the champion of a site away without a new route, so there the route itself is read each time.
            if (number := route_number(self._store)) != self._number or self._site != DEFAULT_SITE:
                self._route, self.challenger = route_at(self._store, self._site), live_route(self._store, "challenger")
                self._number = number
            self._looked = looked
            return self._route


def build_prompt(
    messages: Sequence[Message], rules: RulesFound | None, passages: PassagesFound | None, calls: Sequence[ToolCall] = ()
) -> Sequence[Message]:
    """Rules, passages and results of tools at the start of the system message."""
    parts = []
    if rules is not None and (texts := prompt_texts(rules)):
        parts.append(rules_text(texts))
    language = "zh" if detect_language(messages[-1].content) in ("zh", "mixed") else "en"
    if passages is not None and passages.passages:
        parts.append(fenced(passages, language, secrets.token_hex(8)))
    if computed := tool_part(calls, language):
        parts.append(computed)
    if not parts:
        return messages
    own = messages[0].content if messages[0].role == "system" else ""
    rest = messages[1:] if own else messages
    return (Message(role="system", content="\n\n".join(part for part in (*parts, own) if part)), *rest)


class ErasableMemory(EpisodeMemory):
    """Memory of the live episodes that ends, all of it, as soon as anything was erased in this workspace."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(is_emergent)
        self._register = erasures(settings)
        self._seen = erased_size(self._register)

    def recall(self, episode: str) -> Sequence[Message]:
        self._forget_erased()
        return super().recall(episode)

    def remember(self, episode: str, subject: str | None, messages: Sequence[Message]) -> None:
        """An exchange that began with a memory from before the erasure is not kept: it may hold what was erased."""
        known = episode in self._episodes
        if not (self._forget_erased() and known):
            super().remember(episode, subject, messages)

    def _forget_erased(self) -> bool:
        if (size := erased_size(self._register)) == self._seen:
            return False
        self.forget()
        self._seen = size
        return True


def erasures(settings: Settings) -> Path:
    """The register of erasures."""
    return settings.workspace.keys / "erased.jsonl"


def erased_size(register: Path) -> int:
    """Of the register of erasures; it grows with each."""
    try:
        return os.stat(register).st_size
    except FileNotFoundError:
        return 0


def parts_of(store: Store, settings: Settings) -> AssistantParts:
    """What takes part in the answers of this workspace."""
    routes, memory = RouteCache(store), ErasableMemory(settings)
    rules, documents, tools = rules_for(store), KnowledgeSearch(settings, store=store), clinical_tools(urgency=urgency)
    known: dict[str, AssistantParts] = {}

    def at_site(parts: AssistantParts, site: str) -> AssistantParts:
        """With the champion, the rules and the experiment of that site; everything else is the same for all."""
        if site not in known:
            own, led = rules_for(store, site=site), RouteCache(store, site)
            known[site] = replace(
                parts, find_rules=own, is_quick=lambda: own.is_quick and documents.is_quick, at_site=None,
                choose_arm=chooser(store, site=site), live_route=led.get, refresh_route=led.refresh,
                challenger_route=lambda: led.challenger,
            )  # fmt: skip
        return known[site]

    return AssistantParts(
        live_route=routes.get, refresh_route=routes.refresh, input_guards=input_guards(), output_guards=output_guards(),
        rule_guard=rule_guard, calm_guard=calm_guard,
        guard_hash=guard_hash(), system_prompt=_system_prompt(settings), find_rules=rules,
        find_passages=documents, is_quick=lambda: rules.is_quick and documents.is_quick,
        model_tools=tools if settings.gateway.model_tools else None,
        use_tools=lambda question: call_wanted(tools, question),
        build_prompt=build_prompt, choose_arm=chooser(store), challenger_route=lambda: routes.challenger, recall=memory.recall,
        remember=memory.remember, deadline_s=settings.gateway.deadline_s, most_at_once=settings.gateway.at_once,
        most_tokens=settings.gateway.most_tokens, at_site=at_site,
    )  # fmt: skip


def _system_prompt(settings: Settings) -> str:
    if (path := settings.gateway.prompt_file) is None:
        return ""
    with explain_os_errors(path):
        text = settings.find(str(path)).read_text(encoding="utf-8", errors="replace").strip()
    if not text or len(text) > LONGEST_PROMPT:
        raise ConfigError(f"gateway.prompt_file: {path} is empty or over {LONGEST_PROMPT} characters", "Name a shorter text file")
    return text


def check_assistant(settings: Settings) -> None:
    """ConfigError or MedloopError now, and not while the server starts, where settings name no assistant that can be opened."""
    backend_pool(settings)
    _system_prompt(settings)


@asynccontextmanager
async def open_assistant(
    store: Store, writer: GroupCommitWriter, settings: Settings, *, own: Sequence[BackendAddress] = (), **changes: Any
) -> AsyncIterator[Gateway]:
    """The gateway of one workspace; `changes` replace parts of it."""

    async def save(traces: Sequence[Trace]) -> None:
        await writer.submit(prepare_traces(traces))

    async with AsyncExitStack() as stack:
        counts = stack.enter_context(counting(settings.workspace.logs / "trace_counts.bin"))
        pool = await stack.enter_async_context(backend_pool(settings, own))
        queue = TraceQueue(save, counts, share=settings.gateway.trace_share, erased=partial(erased_size, erasures(settings)))
        traces = await stack.enter_async_context(queue)
        parts = parts_of(store, settings)
        yield Gateway(pool, replace(parts, **changes) if changes else parts, traces)
