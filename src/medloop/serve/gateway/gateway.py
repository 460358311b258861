"""From a chat request to an answer with its ids: route, guards, rules and passages, model server, trace.

    gateway = Gateway(pool, parts, traces)
    plan = await gateway.plan(request, ChatCaller("usr_1"))
    answer = await gateway.answer(plan)                   # OpenAI's chat completion, with a `medloop` object
    ids, events = await gateway.stream(plan)              # the same as server-sent events

What stands before the model's own words (the notice of a guard, the first sentence of a rule) is shown whatever the model says,
and in a stream before its first word. `AssistantParts` are the seams: what is None takes no part in the answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeVar

from medloop.contracts import Message, sha256_id, uuid7
from medloop.contracts.assistant import AnswerSnapshot, GuardAct, PassagesFound, Route, RulesFound
from medloop.serve.agent.tools import ToolCall
from medloop.serve.gateway.answer_plan import (
    LIVE,
    AnswerIds,
    AnswerPlan,
    AssistantParts,
    ChatCaller,
    about,
    check_model,
    version_of,
    without_refused,
)
from medloop.serve.gateway.answer_stream import AnswerEvents, Opening, ReaderTooSlowError, asking, check_time, close_stream
from medloop.serve.gateway.answer_trace import AnswerEnd, trace_of
from medloop.serve.gateway.backends import Backend, BackendPool, BackendReply, Deltas
from medloop.serve.gateway.chat_request import ChatError, ChatRequest, checked_episode, openai_error
from medloop.serve.gateway.episodes import Episodes, memory_key
from medloop.serve.gateway.gateway_counts import GatewayCounts, is_about_version, outcome_of
from medloop.serve.gateway.guards import GuardedAnswer, read_input
from medloop.serve.gateway.model_tools import MOST_ROUNDS, asked_calls, calls_of_stream, offered, run_calls
from medloop.serve.gateway.notices import notice
from medloop.serve.gateway.replies import choice, event, kind_of, no_answer, usage_of
from medloop.serve.gateway.trace_queue import TraceQueue
from medloop.serve.gateway.wire import BackendFailure, Json, Reasoning, with_reasoning

log = logging.getLogger(__name__)
Asked = TypeVar("Asked")
Found = TypeVar("Found")
Reply = TypeVar("Reply")
MOST_SNAPSHOTS = 256
LONG = 2000  # characters from which on guards read in a thread of their own
NOTICE_WAIT_S = 0.5  # a notice does not wait longer for the model server


class Gateway:
    def __init__(self, pool: BackendPool, parts: AssistantParts, traces: TraceQueue) -> None:
        self.pool, self.parts, self.traces = pool, parts, traces
        self.in_flight = 0
        self.counts, self.episodes = GatewayCounts(), Episodes(parts)
        self._closing: set[asyncio.Task[None]] = set()
        self._snapshots: dict[AnswerSnapshot, str] = {}

    def warm(self) -> None:
        """Load what guards and tools read, before somebody waits for it."""
        for text in ("I have a cough.", "我咳嗽。"):
            read_input(self.parts.input_guards, [text])
            GuardedAnswer(self.parts.output_guards, text).feed(f"{text} Take 5 mg.\n")
            _found(self.parts.use_tools, text)

    async def plan(self, request: ChatRequest, caller: ChatCaller, episode: str | None = None) -> AnswerPlan:
        """Guards, rules, passages and tools; everything but the model. The guards come first: whatever fails after them, their
        notice is shown."""
        try:
            return await self._plan(request, caller, episode)
        except ChatError:
            self.counts.outcomes["rejected"] += 1
            raise

    async def _plan(self, request: ChatRequest, caller: ChatCaller, episode: str | None) -> AnswerPlan:
        request.check_tokens(self.parts.most_tokens)
        given = episode or request.episode
        episode_id = uuid7() if given is None else checked_episode(given)
        messages = await self.episodes.recalled(request.conversation(), given and memory_key(caller, given))
        heard = without_refused(messages)
        texts = [message.content for message in heard if message.role == "user"]
        acts = await self._read_input(texts)
        route, arm = None, None
        try:
            route, arm = await self._choose_route(request, caller, episode_id)
        except Exception as error:
            if not any(act.notice for act in acts) or (isinstance(error, ChatError) and error.status == 404):
                raise
            log.error("no route for an answer with a notice: %s", type(error).__name__)
            instead = notice("unavailable", texts[-1])
            acts = (*acts, GuardAct(guard="route", finding="unavailable", stop=True, replacement=instead))
        parts = self.parts.of_site(caller.site)
        quick = parts.is_quick is not None and parts.is_quick() and len(texts[-1]) <= LONG
        rules, passages, calls = _look_up(parts, texts[-1]) if quick else await asyncio.to_thread(_look_up, parts, texts[-1])
        approved = rules.system if rules else ""
        system = heard[0].content if heard[0].role == "system" else approved or self.parts.system_prompt
        prompt: Sequence[Message] = heard
        if system and heard[0].role != "system":
            prompt = (Message(role="system", content=system), *heard)
        if self.parts.build_prompt is not None and (rules or passages or calls):
            prompt = self.parts.build_prompt(prompt, rules, passages, calls)
        for act in acts:
            self.counts.acts[act.guard, act.finding] += 1
        self._count_calls(calls)
        return AnswerPlan(
            request, caller, uuid7(), episode_id, messages, prompt, system, route, acts, rules, passages, arm, tuple(calls)
        )  # fmt: skip

    async def _choose_route(self, request: ChatRequest, caller: ChatCaller, episode_id: str) -> tuple[Route | None, str | None]:
        """The route of this answer, and the arm where an experiment runs."""
        if self.in_flight >= self.parts.most_at_once:
            raise ChatError(
                429, "Too many answers are being written", "Ask again in a moment", kind="rate_limit_error", code="overloaded"
            )
        parts = self.parts.of_site(caller.site)
        route = await parts.live_route()
        check_model(request.model, route)
        if parts.choose_arm is None:
            return route, None
        arm = parts.choose_arm(caller.subject or "", episode_id)
        challenger = parts.challenger_route() if arm == "challenger" and parts.challenger_route else None
        return challenger or route, arm

    async def _read_input(self, texts: Sequence[str]) -> tuple[GuardAct, ...]:
        if sum(map(len, texts)) > LONG:
            return await asyncio.to_thread(read_input, self.parts.input_guards, texts)
        return read_input(self.parts.input_guards, texts)

    def ids(self, plan: AnswerPlan, backend: Backend | None, asked_for: str) -> AnswerIds:
        """Of an answer by this server; before one has answered, of the server that is asked first."""
        fallback = backend is not None and backend.is_fallback
        route = None if fallback else plan.route
        version = version_of(route) if route is not None else asked_for or LIVE
        snapshot = AnswerSnapshot(
            model=version, adapter=route.artifact if route else None, codebook=plan.rules.codebook if plan.rules else None,
            prompt=sha256_id(plan.system) if plan.system else None,
            index=plan.passages.index if plan.passages else None, guard=self.parts.guard_hash,
        )  # fmt: skip
        if (hashed := self._snapshots.get(snapshot)) is None:
            if len(self._snapshots) >= MOST_SNAPSHOTS:
                self._snapshots.clear()
            hashed = self._snapshots[snapshot] = snapshot.hash
        return AnswerIds(plan.inference_id, plan.episode_id, version, hashed, fallback)

    def _payload(self, plan: AnswerPlan) -> Json:
        messages = [{"role": message.role, "content": message.content} for message in plan.prompt]
        return {"messages": messages, **plan.request.sampling(), **offered(self.parts.model_tools)}

    async def answer(self, plan: AnswerPlan) -> tuple[AnswerIds, Json]:
        """The whole answer; ChatError where no model server gives one and no notice has to be shown."""
        checked = GuardedAnswer(self.parts.guards_of(plan), plan.asked)
        asked_for, usage, end = self._first_name(), None, AnswerEnd()
        self.in_flight += 1
        try:
            if plan.refusal is not None:
                end.text = plan.prefix + plan.refusal
            else:
                asked = time.monotonic()
                try:
                    reply = await self._complete(plan)
                finally:
                    end.model_s = time.monotonic() - asked
                end.backend, asked_for, usage = reply.backend, reply.asked_for, usage_of(reply.answer.get("usage"))
                first = reply.answer["choices"][0]
                end.finish = first.get("finish_reason") or "stop"
                end.text = plan.prefix + await _fed(checked, with_reasoning(first["message"]))
        except BackendFailure as failure:
            end.error = kind_of(failure)
            if not plan.prefix:
                end.finish = "error"
                self._ended(plan, self.ids(plan, None, asked_for), checked, end)
                raise no_answer(failure, self.pool.loading) from None
            end.text = plan.prefix + notice("unavailable", plan.question)
        finally:
            self.in_flight -= 1
        ids = self.ids(plan, end.backend, asked_for)
        self._ended(plan, ids, checked, end)
        message = {"role": "assistant", "content": end.text}
        choices = [{"index": 0, "message": message, "logprobs": None, "finish_reason": end.finish}]
        body = self._head(plan, ids, "chat.completion") | {"choices": choices}
        return ids, body | ({"usage": usage} if usage else {}) | {"medloop": about(plan, ids, checked.acts, end.error)}

    async def _complete(self, plan: AnswerPlan) -> BackendReply[Json]:
        payload = self._payload(plan)
        async with asking(self.parts.deadline_s):
            while True:
                reply = await self._ask(plan, lambda wanted, spare: self.pool.complete(wanted, payload, spare=spare))
                if not self._use_tools(plan, payload, asked_calls(reply.answer["choices"][0]["message"])):
                    return reply

    def _use_tools(self, plan: AnswerPlan, payload: Json, asked: Sequence[Json]) -> bool:
        """Run the calls that the model asks for; whether there were any, so that it is asked again."""
        if "tools" not in payload or not asked or self.parts.model_tools is None:
            return False
        messages, calls = run_calls(self.parts.model_tools, asked)
        payload["messages"] += messages
        plan.calls, plan.rounds = (*plan.calls, *calls), plan.rounds + 1
        self._count_calls(calls)
        if plan.rounds >= MOST_ROUNDS:
            del payload["tools"]
        return True

    def _count_calls(self, calls: Sequence[ToolCall]) -> None:
        for call in calls:
            name = call.tool if call.error != "unknown tool" else "unknown"  # a name that a model made up is no label
            self.counts.tools[name, "failed" if call.error else "ok"] += 1

    async def _ask(self, plan: AnswerPlan, ask: Callable[[str | None, bool], Awaitable[Reply]]) -> Reply:
        """The live version; the one that is live by now, where the route was changed meanwhile; else the fallback."""
        try:
            return await ask(plan.wanted, False)
        except BackendFailure as failure:
            if failure.is_of_request:
                raise
            if await self._route_changed(plan):
                try:
                    return await ask(plan.wanted, False)
                except BackendFailure as second:
                    failure = second
            if failure.is_of_request or not self.pool.has_fallback:
                raise failure from None
            plan.gave_up = failure.kind
        return await ask(plan.wanted, True)

    async def _route_changed(self, plan: AnswerPlan) -> bool:
        """A version that was taken away between the look at the route and the question: ask the one that is live now."""
        if plan.arm == "challenger":
            return False
        route = await self.parts.of_site(plan.caller.site).refresh_route()
        if route is None or (plan.route is not None and route.served_name == plan.route.served_name):
            return False
        plan.route = route
        return True

    async def stream(self, plan: AnswerPlan) -> tuple[AnswerIds, AnswerEvents]:
        """Ids and events. Without a notice, a failure before the first word is a ChatError; later it is an event of its own."""
        stack, opening, ids = AsyncExitStack(), None, self.ids(plan, None, self._first_name())
        self.in_flight += 1
        if plan.refusal is None:
            opening = asyncio.create_task(self._open(plan, stack))
            try:
                await asyncio.wait({opening}, timeout=NOTICE_WAIT_S if plan.prefix else None)
            except BaseException:
                await self._unread(plan, ids, opening, stack)
                raise
            failure = opening.exception() if opening.done() else None
            if failure is not None and not plan.prefix:
                await self._unread(plan, ids, opening, stack, AnswerEnd("", "error", kind_of(failure)))
                raise no_answer(failure, self.pool.loading) from None
            if opening.done() and failure is None:
                ids = self.ids(plan, opening.result().backend, opening.result().asked_for)
        unread = partial(self._unread, plan, ids, opening, stack)
        return ids, AnswerEvents(self._events(plan, ids, opening, stack), unread)

    async def _unread(
        self, plan: AnswerPlan, ids: AnswerIds, opening: Opening | None, stack: AsyncExitStack, end: AnswerEnd | None = None
    ) -> None:
        """The end of an answer of which nobody read an event."""
        self.in_flight -= 1
        self._ended(plan, ids, GuardedAnswer(self.parts.output_guards, ""), end or AnswerEnd("", "cancelled"))
        await self._let_go(opening, stack)

    async def _let_go(self, opening: Opening | None, stack: AsyncExitStack) -> None:
        """Leave the model server, also where the one who waits for it is cancelled."""
        if opening is not None:
            closing = asyncio.create_task(close_stream(opening, stack))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)

    async def _open(self, plan: AnswerPlan, stack: AsyncExitStack) -> BackendReply[Deltas]:
        payload = self._payload(plan) | ({"stream_options": {"include_usage": True}} if plan.request.wants_usage else {})
        asked = time.monotonic()
        try:
            async with asking(self.parts.deadline_s):
                while True:
                    own = AsyncExitStack()  # of this stream: one that asks for tools ends before the next begins
                    stack.push_async_exit(own)
                    reply = await self._ask(plan, partial(self._enter, own, payload))
                    if "tools" not in payload:
                        return reply
                    calls, reply.answer = await calls_of_stream(reply.answer)
                    if not self._use_tools(plan, payload, calls):
                        return reply
                    await reply.answer.aclose()
                    await own.aclose()
        finally:
            plan.opening_s = time.monotonic() - asked

    async def _enter(self, own: AsyncExitStack, payload: Json, wanted: str | None, spare: bool) -> BackendReply[Deltas]:
        return await own.enter_async_context(self.pool.stream(wanted, payload, spare=spare))

    async def _events(
        self, plan: AnswerPlan, ids: AnswerIds, opening: Opening | None, stack: AsyncExitStack
    ) -> AsyncGenerator[bytes]:
        checked = GuardedAnswer(self.parts.guards_of(plan), plan.asked)
        head = self._head(plan, ids, "chat.completion.chunk")
        end, usage, began = AnswerEnd(plan.prefix, "cancelled"), None, time.monotonic()
        try:
            yield event(head | choice({"role": "assistant", "content": ""}) | {"medloop": about(plan, ids, [], None)})
            if plan.prefix:
                yield event(head | choice({"content": plan.prefix}))
            reader_s = time.monotonic() - began
            if opening is None:
                end.text, end.finish = plan.prefix + (plan.refusal or ""), "stop"
                yield event(head | choice({"content": plan.refusal or ""}))
            else:
                reply = await opening
                end.backend, end.model_s = reply.backend, plan.opening_s
                ids = self.ids(plan, end.backend, reply.asked_for)
                head["model"] = ids.version
                said, asked = Reasoning(), time.monotonic()
                async for delta in reply.answer:
                    end.model_s += time.monotonic() - asked
                    usage = usage_of(delta.usage) or usage
                    end.finish = delta.finish_reason or end.finish
                    check_time(self.parts.deadline_s, time.monotonic() - plan.started, end.model_s, reader_s)
                    if shown := await _fed(checked, said.of(delta.reasoning, delta.text), end=False):
                        end.text += shown
                        began = time.monotonic()
                        yield event(head | choice({"content": shown}))
                        reader_s += time.monotonic() - began
                    asked = time.monotonic()
                if rest := checked.feed(said.close()) + checked.finish():
                    end.text += rest
                    yield event(head | choice({"content": rest}))
        except ReaderTooSlowError:
            end.finish = "cancelled"
        except Exception as failure:
            end.error, end.finish = kind_of(failure), "error"
            if end.backend is None and plan.prefix:  # the notice stands, and says that nothing else comes
                rest, end.finish = notice("unavailable", plan.question), "stop"
                end.text += rest
                yield event(head | choice({"content": rest}))
            else:
                message = "The model server stopped in the middle of the answer. Ask again."
                yield event(openai_error(message, "server_error", code="stream_interrupted"))
        finally:
            self.in_flight -= 1
            self._ended(plan, ids, checked, end)  # before anything that a cancellation could end
            await self._let_go(opening, stack)
        if end.finish == "cancelled":
            yield event(openai_error("The answer was read too slowly. Ask again.", "server_error", code="stream_interrupted"))
        elif end.finish != "error":
            last = event(head | choice({}, end.finish) | {"medloop": about(plan, ids, checked.acts, end.error)})
            if plan.request.wants_usage and usage is not None:
                last += event(head | {"choices": [], "usage": usage})
            yield last + b"data: [DONE]\n\n"

    def _first_name(self) -> str:
        return next((name for backend in self.pool.backends if (name := backend.name_for(None))), LIVE)

    def _head(self, plan: AnswerPlan, ids: AnswerIds, kind: str) -> Json:
        return {"id": f"chatcmpl-{ids.inference_id}", "object": kind, "created": plan.created, "model": ids.version}

    def _ended(self, plan: AnswerPlan, ids: AnswerIds, checked: GuardedAnswer, end: AnswerEnd) -> None:
        """Count the answer and hand it to the queue, the alarms and the memory; never waits, and never costs the answer."""
        end.acts, end.seconds = tuple(checked.acts), time.monotonic() - plan.started
        for act in end.acts:
            self.counts.acts[act.guard, act.finding] += 1
        outcome = outcome_of(end.finish, end.error, refused=plan.refusal is not None, fallback=ids.fallback)
        self.counts.add(outcome, end.seconds)
        if self.parts.on_answer is not None and plan.route is not None and is_about_version(outcome, plan.gave_up or end.error):
            self.parts.on_answer(plan.route.served_name, ok=outcome == "answered", seconds=end.model_s)
        make = partial(trace_of, plan, ids, end, self.traces.share)
        self.traces.put(ids.inference_id, make, always=bool(plan.acts or end.acts) or end.error is not None)
        self.episodes.remember(plan, end.text)


def _look_up(parts: AssistantParts, question: str) -> tuple[RulesFound | None, PassagesFound | None, Sequence[ToolCall]]:
    """What goes into the prompt beside the user's words."""
    return _found(parts.find_rules, question), _found(parts.find_passages, question), _found(parts.use_tools, question) or ()


def _found(find: Callable[[Asked], Found] | None, asked: Asked) -> Found | None:
    """What a part of the assistant gives; an answer does without it where it fails."""
    if find is None:
        return None
    try:
        return find(asked)
    except Exception as error:  # never its text: it may hold what people wrote
        log.error("an answer does without a part of the assistant: %s", type(error).__name__)
        return None


async def _fed(checked: GuardedAnswer, text: str, *, end: bool = True) -> str:
    """The text through the guards; a long one in a thread, so that nobody else waits for it."""

    def feed() -> str:
        return checked.feed(text) + (checked.finish() if end else "")

    return await asyncio.to_thread(feed) if len(text) > LONG else feed()
