"""The trace of one answer: everything that was said, by which version, with which rules, passages, tools and acts of guards."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from medloop.contracts import Conversation, Message, Trace, utc_now
from medloop.contracts.assistant import GuardAct
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.serve.gateway.answer_plan import AnswerIds, AnswerPlan
from medloop.serve.gateway.backends import Backend
from medloop.serve.gateway.wire import Json

AGENT = "assistant"


@dataclass
class AnswerEnd:
    """How an answer ended; `model_s` are the seconds that the model servers took."""

    text: str = ""
    finish: str = "stop"
    error: str | None = None
    backend: Backend | None = None
    acts: tuple[GuardAct, ...] = ()
    seconds: float = 0.0
    model_s: float = 0.0
    at: datetime = field(default_factory=utc_now)


def trace_of(plan: AnswerPlan, ids: AnswerIds, end: AnswerEnd, share: float) -> Trace:
    meta: Json = {
        "finish_reason": end.finish, "seconds": round(end.seconds, 3), "prefix": len(plan.prefix),
        "guards": [act.model_dump(exclude_none=True, exclude={"notice", "replacement"}) for act in (*plan.acts, *end.acts)],
    }  # fmt: skip
    optional = {
        "error": end.error, "fallback": ids.fallback or None, "arm": plan.arm,
        "site": None if plan.caller.site == DEFAULT_SITE else plan.caller.site,
        "backend": end.backend.address.url if end.backend else None,
        "rules": [rule.rule_id for rule in plan.rules.rules] if plan.rules else None,
        "passages": [passage.passage_id for passage in plan.passages.passages] if plan.passages else None,
        "tools": [call.model_dump(exclude_none=True, exclude={"arguments": {"text"}}) for call in plan.calls] or None,
    }  # fmt: skip
    answer = (Message(role="assistant", content=end.text),) if end.text else ()
    return Trace(
        trace_id=ids.inference_id, session_id=ids.episode_id, agent_name=AGENT, model_version=ids.version,
        conversation=Conversation(messages=(*plan.messages, *answer)), snapshot=ids.snapshot,
        contexts=tuple(passage.text for passage in plan.passages.passages) if plan.passages else (),
        user_hash=plan.caller.subject, sampling_share=share, timestamp=end.at,
        meta=meta | {name: value for name, value in optional.items() if value is not None},
    )  # fmt: skip
