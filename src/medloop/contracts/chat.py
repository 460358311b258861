"""Conversations, and what a model answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from medloop.contracts.base import Contract, Hash, Json, Text, Timestamp, Unit, utc_now, uuid7

Role = Literal["system", "user", "assistant"]


class Message(Contract):
    role: Role
    content: Text


class Conversation(Contract):
    """A system message first if there is one, then user and assistant alternate."""

    messages: tuple[Message, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _roles_alternate(self) -> Conversation:
        roles = [message.role for message in self.messages]
        for index, role in enumerate(roles[1:] if roles[0] == "system" else roles):
            expected = "assistant" if index % 2 else "user"
            if role != expected:
                raise ValueError(f"message {index + 1} has the role {role}, expected {expected}")
        return self

    @property
    def question(self) -> str:
        """The last message of the user."""
        return next((m.content for m in reversed(self.messages) if m.role == "user"), "")

    @property
    def user_text(self) -> str:
        """All messages of the user: a danger named in the first message still counts in the last."""
        return "\n".join(m.content for m in self.messages if m.role == "user")

    @property
    def answer(self) -> str | None:
        last = self.messages[-1]
        return last.content if last.role == "assistant" else None

    @property
    def prompt(self) -> tuple[Message, ...]:
        """What the model sees: everything before the last answer."""
        return self.messages[:-1] if self.messages[-1].role == "assistant" else self.messages


class Completion(Contract):
    """One answer to one prompt, with all that is needed to generate it again."""

    prompt_id: Text
    model: Text
    text: str
    adapter: Hash | None = None
    seed: int | None = None
    temperature: float = Field(0.0, ge=0)
    finish_reason: Literal["stop", "length", "error"] = "stop"
    n_tokens: int = Field(0, ge=0)
    error: Text | None = Field(
        None, description="Why the answer is missing, if asking again could give one: a timeout or a refusal."
    )


class Trace(Contract):
    """One exchange in production; `snapshot` is the hash of model, adapter, codebook, prompt and index together."""

    trace_id: Text = Field(default_factory=uuid7)
    session_id: Text
    agent_name: Text
    conversation: Conversation
    model_version: Text
    snapshot: Hash | None = None
    contexts: tuple[Text, ...] = ()
    user_hash: str | None = None
    sampling_share: Unit | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)
    meta: Json = Field(default_factory=dict)


GATEWAY_META = frozenset({"finish_reason", "seconds", "prefix", "guards"})  # in `meta` of every trace of medloop's own gateway
GATEWAY_OPTIONAL = frozenset({"error", "fallback", "arm", "site", "backend", "rules", "passages", "tools"})


def is_from_gateway(meta: Mapping[str, Any]) -> bool:
    """Whether medloop wrote this metadata itself. An application may have fields of these names, but it can send no list, and
    has fields of its own as a rule."""
    return GATEWAY_META <= meta.keys() <= GATEWAY_META | GATEWAY_OPTIONAL and isinstance(meta["guards"], list)
