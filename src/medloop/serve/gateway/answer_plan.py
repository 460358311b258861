"""What takes part in an answer, what is known before the model is asked, and the ids that the answer carries."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from medloop.contracts import Message
from medloop.contracts.assistant import (
    ChooseArm,
    FindPassages,
    FindRules,
    GuardAct,
    Passage,
    PassagesFound,
    Route,
    RulesFound,
)
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.serve.agent.tools import Tool, ToolCall
from medloop.serve.gateway.chat_request import ChatError, ChatRequest
from medloop.serve.gateway.gateway_counts import OnAnswer
from medloop.serve.gateway.guards import NamedInputGuard, NamedOutputGuard
from medloop.serve.gateway.notices import notices

Json = dict[str, Any]
EMERGENT = "emergent"  # what the guard finds in an emergency
LIVE = "medloop"  # the model name under which every client reaches what is live
BuildPrompt = Callable[
    [Sequence[Message], RulesFound | None, PassagesFound | None, Sequence[ToolCall]], Sequence[Message]
]  # fmt: skip


@dataclass(frozen=True)
class ChatCaller:
    """Who asks: their user id and site, and the keyed hash of the person it is about (OpenAI's `user`), if they say."""

    user_id: str
    subject: str | None = None
    site: str = DEFAULT_SITE


@dataclass
class AssistantParts:
    """Everything that takes part in an answer; loop/assistant.py puts it together."""

    live_route: Callable[[], Awaitable[Route | None]]
    refresh_route: Callable[[], Awaitable[Route | None]]
    input_guards: Sequence[NamedInputGuard] = ()
    output_guards: Sequence[NamedOutputGuard] = ()
    rule_guard: Callable[[RulesFound, str], NamedOutputGuard | None] | None = None  # that enforces the rules of one question
    guard_hash: str | None = None
    calm_guard: Callable[[str], NamedOutputGuard] | None = None  # of answers to a question in which a guard saw an emergency
    system_prompt: str = ""
    find_rules: FindRules | None = None
    find_passages: FindPassages | None = None
    is_quick: Callable[[], bool] | None = None  # whether rules and passages are found at once, so that no thread is needed
    model_tools: Mapping[str, Tool] | None = None  # that the model may ask for; None: it is told of none
    use_tools: Callable[[str], Sequence[ToolCall]] | None = None
    build_prompt: BuildPrompt | None = None
    choose_arm: ChooseArm | None = None
    challenger_route: Callable[[], Route | None] | None = None
    recall: Callable[[str], Sequence[Message]] | None = None
    remember: Callable[[str, str | None, Sequence[Message]], None] | None = None
    on_answer: OnAnswer | None = None
    at_site: Callable[[AssistantParts, str], AssistantParts] | None = None  # the parts of another site than `main`
    deadline_s: float = 300.0
    most_at_once: int = 128
    most_tokens: int = 8192

    def of_site(self, site: str) -> AssistantParts:
        return self if site == DEFAULT_SITE or self.at_site is None else self.at_site(self, site)

    def guards_of(self, plan: AnswerPlan) -> Sequence[NamedOutputGuard]:
        """The guards of one answer: that of its rules, that of an emergency, then those of every answer."""
        own = self.rule_guard(plan.rules, plan.question) if self.rule_guard and plan.rules and plan.rules.rules else None
        emergent = any(act.finding == EMERGENT for act in plan.acts)
        calm = self.calm_guard(plan.question) if self.calm_guard and emergent else None
        return (*(guard for guard in (own, calm) if guard is not None), *self.output_guards)


@dataclass
class AnswerPlan:
    """What is known before the model is asked."""

    request: ChatRequest
    caller: ChatCaller
    inference_id: str
    episode_id: str
    messages: tuple[Message, ...]
    prompt: Sequence[Message]
    system: str
    route: Route | None
    acts: tuple[GuardAct, ...] = ()
    rules: RulesFound | None = None
    passages: PassagesFound | None = None
    arm: str | None = None
    calls: tuple[ToolCall, ...] = ()
    created: int = field(default_factory=lambda: int(time.time()))
    started: float = field(default_factory=time.monotonic)
    rounds: int = 0  # of calls that the model asked for
    gave_up: str | None = None  # why the version gave no answer, where the fallback was asked
    opening_s: float = 0.0  # that the first word of a stream took

    @property
    def wanted(self) -> str | None:
        """The name of the model to ask for; None where no route is live."""
        return self.route.served_name if self.route else None

    @property
    def asked(self) -> str:
        """All that the user wrote: what the guards of the answer know before it."""
        return "\n".join(message.content for message in self.messages if message.role == "user")

    @property
    def question(self) -> str:
        return self.messages[-1].content

    @property
    def prefix(self) -> str:
        """What is shown before the model's words: notices first, then the first sentences of rules."""
        texts = [act.notice for act in self.acts] + [rule.first_sentence for rule in (self.rules.rules if self.rules else ())]
        return "".join(f"{text}\n\n" for text in dict.fromkeys(texts) if text)

    @property
    def refusal(self) -> str | None:
        """The answer of a guard that does not let the model speak."""
        stop = next((act for act in self.acts if act.stop), None)
        return None if stop is None else stop.replacement


@dataclass(frozen=True)
class AnswerIds:
    """What every answer carries."""

    inference_id: str
    episode_id: str
    version: str
    snapshot: str
    fallback: bool = False

    def headers(self) -> dict[str, str]:
        return {
            "X-Medloop-Inference": self.inference_id, "X-Medloop-Episode": self.episode_id,
            "X-Medloop-Version": self.version.encode("ascii", "replace").decode(), "X-Medloop-Snapshot": self.snapshot,
        }  # fmt: skip


def about(plan: AnswerPlan, ids: AnswerIds, acts: Sequence[GuardAct], error: str | None) -> Json:
    """The `medloop` object of an answer."""
    every = (*plan.acts, *acts)
    found: Json = {
        "inference_id": ids.inference_id, "episode_id": ids.episode_id, "version": ids.version, "snapshot": ids.snapshot,
        "notice": plan.prefix.strip() or None, "prefix": len(plan.prefix), "fallback": ids.fallback,
        "guards": [{"guard": act.guard, "finding": act.finding, **({"rule": act.rule} if act.rule else {})} for act in every],
        "rules": [rule.rule_id for rule in plan.rules.rules] if plan.rules else [],
        "citations": [_citation(number, passage) for number, passage in enumerate(_passages(plan), 1)],
    }  # fmt: skip
    used = [{"tool": call.tool, "ok": call.error is None} for call in plan.calls]
    return found | ({"tools": used} if used else {}) | ({"error": error} if error else {})


def without_refused(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Without the attempts to change the instructions that were answered with nothing but the vetted refusal: the model never
    reads them again, so a client that writes such a history itself gains nothing. An answer with a notice stays."""
    said = notices()["injection"]
    refusals = (*said, "\n".join(said))
    refused = {
        index
        for index, (message, after) in enumerate(pairwise(messages))
        if message.role == "user" and after.role == "assistant" and after.content.strip() in refusals
    }
    return tuple(message for index, message in enumerate(messages) if not {index, index - 1} & refused)


def _passages(plan: AnswerPlan) -> tuple[Passage, ...]:
    return plan.passages.passages if plan.passages else ()


def _citation(number: int, passage: Passage) -> Json:
    return {"number": number, **passage.model_dump(exclude={"score"}, exclude_none=True)}


def version_of(route: Route) -> str:
    return f"{route.model}@{route.version}" if route.version is not None else route.model


def check_model(name: str, route: Route | None) -> None:
    """Clients ask for what is live; they may name it, but no other version."""
    known = {LIVE} | ({route.model, route.served_name, version_of(route)} if route else set())
    if name not in known and route is not None:
        raise ChatError(
            404, "This model is not the one that is live", f"Use model '{LIVE}'", param="model", code="model_not_found"
        )  # fmt: skip
