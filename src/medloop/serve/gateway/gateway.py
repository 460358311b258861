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
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from medloop.contracts import Conversation, Message, Trace, sha256_id, uuid7
from medloop.contracts.assistant import AnswerSnapshot, GuardAct, Route
from medloop.serve.gateway.answer_plan import (
    AnswerIds,
    AnswerPlan,
    AssistantParts,
    ChatCaller,
    about,
    version_of,
    without_refused,
)
from medloop.serve.gateway.backends import Backend, BackendPool, BackendReply, Deltas
from medloop.serve.gateway.chat_request import ChatError, ChatRequest, checked_episode, openai_error
from medloop.serve.gateway.guards import GuardedAnswer, read_input
from medloop.serve.gateway.notices import notice
from medloop.serve.gateway.trace_queue import TraceQueue
from medloop.serve.gateway.wire import BackendFailure, Json, Reasoning, with_reasoning

log = logging.getLogger(__name__)
Found = TypeVar("Found")
AGENT = "assistant"
LIVE = "medloop"  # the model name under which every client reaches what is live
LONG = 2000  # characters from which on guards read in a thread of their own
NOTICE_WAIT_S = 0.5  # a notice does not wait longer for the model server
START_ONE = "Start a model server and name it in gateway.backends, or run: medloop api serve --with-model embedded:tiny"


class Gateway:
    def __init__(self, pool: BackendPool, parts: AssistantParts, traces: TraceQueue) -> None:
        self.pool, self.parts, self.traces = pool, parts, traces
        self.in_flight = 0
        self.answers = 0
        self.acts: dict[tuple[str, str], int] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def plan(self, request: ChatRequest, caller: ChatCaller, episode: str | None = None) -> AnswerPlan:
        """Guards, rules and passages; everything but the model. The guards come first: whatever fails after them, their notice
        is shown."""
        given = episode or request.episode
        episode_id = uuid7() if given is None else checked_episode(given)
        messages = self._with_memory(request.conversation(), given and memory_key(caller, given))
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
        rules = await _found(self.parts.find_rules, texts[-1])
        passages = await _found(self.parts.find_passages, texts[-1])
        approved = rules.system if rules else ""
        system = heard[0].content if heard[0].role == "system" else approved or self.parts.system_prompt
        prompt: Sequence[Message] = heard
        if system and heard[0].role != "system":
            prompt = (Message(role="system", content=system), *heard)
        if self.parts.build_prompt is not None and (rules or passages):
            prompt = self.parts.build_prompt(prompt, rules, passages)
        for act in acts:
            self._count(act)
        return AnswerPlan(request, caller, uuid7(), episode_id, messages, prompt, system, route, acts, rules, passages, arm)

    async def _choose_route(self, request: ChatRequest, caller: ChatCaller, episode_id: str) -> tuple[Route | None, str | None]:
        """The route of this answer, and the arm where an experiment runs."""
        if self.in_flight >= self.parts.most_at_once:
            raise ChatError(
                429, "Too many answers are being written", "Ask again in a moment", kind="rate_limit_error", code="overloaded"
            )
        route = await self.parts.live_route()
        _check_model(request.model, route)
        if self.parts.choose_arm is None:
            return route, None
        arm = self.parts.choose_arm(caller.subject or "", episode_id)
        challenger = self.parts.challenger_route() if arm == "challenger" and self.parts.challenger_route else None
        return challenger or route, arm

    def _with_memory(self, messages: tuple[Message, ...], episode: str | None) -> tuple[Message, ...]:
        """A client that sends its newest question alone, with the episode, is reminded of what was said before."""
        if self.parts.recall is None or episode is None or len([m for m in messages if m.role != "system"]) > 1:
            return messages
        remembered = [message for message in self.parts.recall(episode) if message.role != "system"]
        head = 1 if messages[0].role == "system" else 0
        return (*messages[:head], *remembered, *messages[head:])

    async def _read_input(self, texts: Sequence[str]) -> tuple[GuardAct, ...]:
        if sum(map(len, texts)) > LONG:
            return await asyncio.to_thread(read_input, self.parts.input_guards, texts)
        return read_input(self.parts.input_guards, texts)

    def _count(self, act: GuardAct) -> None:
        self.acts[act.guard, act.finding] = self.acts.get((act.guard, act.finding), 0) + 1

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
        return AnswerIds(plan.inference_id, plan.episode_id, version, snapshot.hash, fallback)

    def _payload(self, plan: AnswerPlan) -> Json:
        messages = [{"role": message.role, "content": message.content} for message in plan.prompt]
        return {"messages": messages, **plan.request.sampling()}

    async def answer(self, plan: AnswerPlan) -> tuple[AnswerIds, Json]:
        """The whole answer; ChatError where no model server gives one and no notice has to be shown."""
        checked = GuardedAnswer(self.parts.output_guards, _context(plan))
        backend, asked_for, finish, usage, error, text = None, self._first_name(plan), "stop", None, None, ""
        self.in_flight += 1
        try:
            if plan.refusal is not None:
                text = plan.prefix + plan.refusal
            else:
                reply = await self._complete(plan)
                backend, asked_for, usage = reply.backend, reply.asked_for, _usage(reply.answer.get("usage"))
                choice = reply.answer["choices"][0]
                finish = choice.get("finish_reason") or "stop"
                said = with_reasoning(choice["message"])
                shown = await _fed(checked, said)
                text = plan.prefix + shown
        except (BackendFailure, TimeoutError) as failure:
            error = failure.kind if isinstance(failure, BackendFailure) else "timeout"
            if not plan.prefix:
                self._trace(plan, self.ids(plan, None, asked_for), "", checked.acts, "error", error)
                raise _no_answer(failure) from None
            text = plan.prefix + notice("unavailable", plan.question)
        finally:
            self.in_flight -= 1
        ids = self.ids(plan, backend, asked_for)
        self._trace(plan, ids, text, checked.acts, finish, error, backend)
        message = {"role": "assistant", "content": text}
        choices = [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}]
        body = self._head(plan, ids, "chat.completion") | {"choices": choices}
        return ids, body | ({"usage": usage} if usage else {}) | {"medloop": about(plan, ids, checked.acts, error)}

    async def _complete(self, plan: AnswerPlan) -> BackendReply[Json]:
        payload, wanted = self._payload(plan), plan.route.served_name if plan.route else None
        async with asyncio.timeout(self.parts.deadline_s):
            try:
                return await self.pool.complete(wanted, payload)
            except BackendFailure as failure:
                if not await self._route_changed(plan, failure):
                    raise
                return await self.pool.complete(plan.route.served_name if plan.route else None, payload)

    async def _route_changed(self, plan: AnswerPlan, failure: BackendFailure) -> bool:
        """A version that was taken away between the look at the route and the question: ask the one that is live now."""
        if failure.kind != "no_model" or plan.arm == "challenger":
            return False
        route = await self.parts.refresh_route()
        if route is None or (plan.route is not None and route.served_name == plan.route.served_name):
            return False
        plan.route = route
        return True

    async def stream(self, plan: AnswerPlan) -> tuple[AnswerIds, AsyncGenerator[bytes]]:
        """Ids and events. Without a notice, a failure before the first word is a ChatError; later it is an event of its own."""
        if plan.refusal is not None:
            ids = self.ids(plan, None, self._first_name(plan))
            return ids, self._events(plan, ids, None, None)
        stack = AsyncExitStack()
        opening = asyncio.create_task(self._open(plan, stack))
        try:
            await asyncio.wait({opening}, timeout=NOTICE_WAIT_S if plan.prefix else None)
        except BaseException:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await stack.aclose()
            raise
        if not opening.done() or (opening.exception() is not None and plan.prefix):
            return (ids := self.ids(plan, None, self._first_name(plan))), self._events(plan, ids, opening, stack)
        if (failure := opening.exception()) is not None:
            await stack.aclose()
            if not isinstance(failure, BackendFailure | TimeoutError):
                raise failure
            self._trace(plan, self.ids(plan, None, self._first_name(plan)), "", [], "error", _kind(failure))
            raise _no_answer(failure) from None
        reply = opening.result()
        ids = self.ids(plan, reply.backend, reply.asked_for)
        return ids, self._events(plan, ids, opening, stack)

    async def _open(self, plan: AnswerPlan, stack: AsyncExitStack) -> BackendReply[Deltas]:
        payload = self._payload(plan) | ({"stream_options": {"include_usage": True}} if plan.request.wants_usage else {})
        try:
            return await stack.enter_async_context(self.pool.stream(plan.route.served_name if plan.route else None, payload))
        except BackendFailure as failure:
            if not await self._route_changed(plan, failure):
                raise
            return await stack.enter_async_context(self.pool.stream(plan.route.served_name if plan.route else None, payload))

    async def _events(
        self, plan: AnswerPlan, ids: AnswerIds, opening: asyncio.Task[BackendReply[Deltas]] | None, stack: AsyncExitStack | None
    ) -> AsyncGenerator[bytes]:
        checked = GuardedAnswer(self.parts.output_guards, _context(plan))
        head = self._head(plan, ids, "chat.completion.chunk")
        text, finish, error, usage, backend = plan.prefix, "cancelled", None, None, None
        self.in_flight += 1
        try:
            yield _event(head | _choice({"role": "assistant", "content": ""}) | {"medloop": about(plan, ids, [], None)})
            if plan.prefix:
                yield _event(head | _choice({"content": plan.prefix}))
            if opening is None:
                text, finish = plan.prefix + (plan.refusal or ""), "stop"
                yield _event(head | _choice({"content": plan.refusal or ""}))
            else:
                reply = await opening
                backend = reply.backend
                ids = self.ids(plan, backend, reply.asked_for)
                head["model"] = ids.version
                said = Reasoning()
                async for delta in reply.answer:
                    usage = _usage(delta.usage) or usage
                    finish = delta.finish_reason or finish
                    if time.monotonic() - plan.started > self.parts.deadline_s:
                        raise BackendFailure("timeout", "the answer took too long")
                    if shown := await _fed(checked, said.of(delta.reasoning, delta.text), end=False):
                        text += shown
                        yield _event(head | _choice({"content": shown}))
                if rest := checked.feed(said.close()) + checked.finish():
                    text += rest
                    yield _event(head | _choice({"content": rest}))
        except (BackendFailure, TimeoutError) as failure:
            error, finish = _kind(failure), "error"
            if backend is None and plan.prefix:  # the notice stands, and says that nothing else comes
                rest, finish = notice("unavailable", plan.question), "stop"
                text += rest
                yield _event(head | _choice({"content": rest}))
            else:
                message = "The model server stopped in the middle of the answer. Ask again."
                yield _event(openai_error(message, "server_error", code="stream_interrupted"))
        finally:
            self.in_flight -= 1
            self._trace(plan, ids, text, checked.acts, finish, error, backend)  # before anything that a cancellation could end
            if opening is not None and stack is not None:
                closing = asyncio.create_task(_close(opening, stack))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
                await asyncio.shield(closing)
        if finish != "error":
            yield _event(head | _choice({}, finish) | {"medloop": about(plan, ids, checked.acts, error)})
            if plan.request.wants_usage and usage is not None:
                yield _event(head | {"choices": [], "usage": usage})
            yield b"data: [DONE]\n\n"

    def _first_name(self, plan: AnswerPlan) -> str:
        return next((name for backend in self.pool.backends if (name := backend.name_for(None))), LIVE)

    def _head(self, plan: AnswerPlan, ids: AnswerIds, kind: str) -> Json:
        return {"id": f"chatcmpl-{ids.inference_id}", "object": kind, "created": plan.created, "model": ids.version}

    def _trace(
        self, plan: AnswerPlan, ids: AnswerIds, text: str, acts: Sequence[GuardAct], finish: str, error: str | None,
        backend: Backend | None = None,
    ) -> None:  # fmt: skip
        """Hand the exchange to the queue and to the memory; never waits, and never costs the answer."""
        self.answers += 1
        for act in acts:
            self._count(act)
        try:
            self._put_trace(plan, ids, text, acts, finish, error, backend)
        except Exception as failure:  # never its text: it may hold what people wrote
            log.error("a trace was not made: %s", type(failure).__name__)
            self.traces.count_failed()
        if self.parts.remember is not None and text:
            try:
                messages = (*plan.messages, Message(role="assistant", content=text))
                self.parts.remember(memory_key(plan.caller, plan.episode_id), plan.caller.subject, messages)
            except Exception as failure:
                log.error("an exchange was not remembered: %s", type(failure).__name__)

    def _put_trace(
        self, plan: AnswerPlan, ids: AnswerIds, text: str, acts: Sequence[GuardAct], finish: str, error: str | None,
        backend: Backend | None,
    ) -> None:  # fmt: skip
        every = (*plan.acts, *acts)
        meta: Json = {
            "finish_reason": finish, "seconds": round(time.monotonic() - plan.started, 3), "prefix": len(plan.prefix),
            "guards": [act.model_dump(exclude_none=True, exclude={"notice", "replacement"}) for act in every],
        }  # fmt: skip
        optional = {
            "error": error, "fallback": ids.fallback or None, "arm": plan.arm,
            "backend": backend.address.url if backend else None,
            "rules": [rule.rule_id for rule in plan.rules.rules] if plan.rules else None,
            "passages": [passage.passage_id for passage in plan.passages.passages] if plan.passages else None,
        }  # fmt: skip
        answer = (Message(role="assistant", content=text),) if text else ()
        trace = Trace(
            trace_id=ids.inference_id, session_id=ids.episode_id, agent_name=AGENT, model_version=ids.version,
            conversation=Conversation(messages=(*plan.messages, *answer)), snapshot=ids.snapshot,
            contexts=tuple(passage.text for passage in plan.passages.passages) if plan.passages else (),
            user_hash=plan.caller.subject, sampling_share=self.traces.share,
            meta=meta | {name: value for name, value in optional.items() if value is not None},
        )  # fmt: skip
        self.traces.put(trace, always=bool(every) or error is not None)


def _check_model(name: str, route: Route | None) -> None:
    """Clients ask for what is live; they may name it, but no other version."""
    known = {LIVE} | ({route.model, route.served_name, version_of(route)} if route else set())
    if name not in known and route is not None:
        raise ChatError(
            404, "This model is not the one that is live", f"Use model '{LIVE}'", param="model", code="model_not_found"
        )  # fmt: skip


def memory_key(caller: ChatCaller, episode: str) -> str:
    """What an episode is remembered under: whoever names the episode of somebody else recalls nothing."""
    return f"{caller.user_id} {caller.subject or ''} {episode}"


async def _found(find: Callable[[str], Found] | None, question: str) -> Found | None:
    """Rules or passages for a question; an answer does without them where the search fails."""
    if find is None:
        return None
    try:
        return await asyncio.to_thread(find, question)
    except Exception as error:  # never its text: it may hold what people wrote
        log.error("rules or passages were not found: %s", type(error).__name__)
        return None


async def _close(opening: asyncio.Task[BackendReply[Deltas]], stack: AsyncExitStack) -> None:
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await stack.aclose()


def _context(plan: AnswerPlan) -> str:
    """What the guards of the answer know before it: what the user wrote."""
    return "\n".join(message.content for message in plan.messages if message.role == "user")


async def _fed(checked: GuardedAnswer, text: str, *, end: bool = True) -> str:
    """The text through the guards; a long one in a thread, so that nobody else waits for it."""

    def feed() -> str:
        return checked.feed(text) + (checked.finish() if end else "")

    return await asyncio.to_thread(feed) if len(text) > LONG else feed()


def _kind(failure: BaseException) -> str:
    return failure.kind if isinstance(failure, BackendFailure) else "timeout"


def _no_answer(failure: BaseException) -> ChatError:
    kind = _kind(failure)
    if kind == "refused":
        status = failure.status if isinstance(failure, BackendFailure) else None
        too_long = "The model server refused the request; it may be too long for the model"
        return ChatError(400, too_long, "Shorten the conversation, or begin a new one", code=f"backend_{status}")
    if kind == "timeout":
        return ChatError(504, "The model server did not answer in time", "Ask again", kind="server_error", code="timeout")
    if kind == "busy":
        return ChatError(429, "The model server is busy", "Ask again in a moment", kind="rate_limit_error", code="overloaded")
    return ChatError(503, "No model server answers", START_ONE, kind="server_error", code="no_backend")


def _usage(usage: Any) -> Json | None:
    if not isinstance(usage, dict):
        return None
    counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return counts if all(type(count) is int for count in counts.values()) else None


def _choice(delta: Json, finish: str | None = None) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def _event(value: Json) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n\n"
