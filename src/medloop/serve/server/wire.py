"""Request bodies: parsed without trust, checked whole, turned into what the engine needs.

A body may have the wrong types, numbers beyond any range, NaN, a thousand brackets or half a surrogate pair; each becomes one
sentence with status 400. Fields of OpenAI's and vLLM's that are not implemented are accepted at the value that changes nothing
and refused at any other, so that no caller believes in an option without effect. Unknown fields are ignored.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medloop.contracts import Message
from medloop.serve.server.refusal import Refusal

MAX_BODY_BYTES = 4 * 2**20
MAX_DEPTH = 32  # brackets inside brackets; chat bodies need five
MAX_STOPS, MAX_STOP_CHARACTERS = 16, 1000
MAX_TOP_LOGPROBS = 20
GREEDY_BELOW = 1e-5  # a lower temperature is greedy: the division would overflow
NEUTRAL: dict[str, tuple[Any, ...]] = {
    # Values that change nothing; any other is refused.
    "n": (None, 1), "best_of": (None, 1), "echo": (None, False), "suffix": (None, ""), "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0), "repetition_penalty": (None, 1), "logit_bias": (None, {}), "top_k": (None, 0, -1),
    "min_p": (None, 0), "tools": (None, []), "functions": (None, []), "tool_choice": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}), "prompt_logprobs": (None,), "min_tokens": (None, 0), "audio": (None,),
    "use_beam_search": (None, False), "modalities": (None, ["text"]), "guided_json": (None,), "guided_regex": (None,),
    "guided_choice": (None,), "structured_outputs": (None,), "continue_final_message": (None, False),
}  # fmt: skip
B = TypeVar("B", bound="ServeBody")


class ServeBody(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)


class StreamOptions(ServeBody):
    include_usage: bool | None = None


class _Sampled(ServeBody):
    """What the two doors share."""

    model: str | None = Field(None, max_length=1000)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=10**9)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = Field(None, max_length=MAX_STOPS * 8)
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    return_token_ids: bool | None = None

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class TextPart(ServeBody):
    type: Literal["text"]
    text: str


class ChatMessage(ServeBody):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = None

    @property
    def text(self) -> str:
        parts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content or ()]
        return "\n".join(parts)


class ChatBody(_Sampled):
    messages: list[ChatMessage] = Field(min_length=1, max_length=2000)
    max_completion_tokens: int | None = Field(None, ge=1, le=10**9)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)
    add_generation_prompt: Literal[True] | None = None

    @property
    def conversation(self) -> list[Message]:
        """As the chat template takes it; an empty text is allowed here."""
        return [
            Message.model_construct(role="system" if m.role == "developer" else m.role, content=m.text) for m in self.messages
        ]


class CompletionBody(_Sampled):
    prompt: str | list[int] | list[str] | list[list[int]]
    logprobs: int | None = Field(None, ge=0, le=MAX_TOP_LOGPROBS)


class LoadAdapterBody(ServeBody):
    lora_name: str = Field("", max_length=200)
    lora_path: str = Field("", max_length=4096)
    load_inplace: bool | None = None


class UnloadAdapterBody(ServeBody):
    lora_name: str = Field("", max_length=200)


@dataclass(frozen=True)
class SamplingParams:
    """How one answer is drawn. `logprobs` is the number of alternatives to report beside each token; None reports nothing."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


def parse_body(kind: type[B], content: bytes) -> B:
    """The body, or a Refusal that names the field and what is wrong with it, without quoting its text."""
    value = _parse_json(content)
    if not isinstance(value, dict):
        raise Refusal(400, "The body must be a JSON object")
    for name, neutral in NEUTRAL.items():
        if name in value and not any(_same(value[name], known) for known in neutral):
            raise Refusal(400, f"'{name}' is not supported by this server; leave it out", param=name)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in problem["loc"][:4])
        raise Refusal(400, f"'{place}': {problem['msg']}", param=str(problem["loc"][0])) from None


def _same(value: Any, known: Any) -> bool:
    """1 and 1.0 are the same, true is not."""
    return bool(value == known) and isinstance(value, bool) == isinstance(known, bool)


def _parse_json(content: bytes) -> Any:
    def no_constant(name: str) -> float:
        raise ValueError(name)

    try:
        text = content.decode("utf-8")
        if _depth(text) > MAX_DEPTH:
            raise Refusal(400, f"The body is nested more than {MAX_DEPTH} levels deep")
        value = json.loads(text, parse_constant=no_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # half a surrogate pair is no text
    except (ValueError, RecursionError):  # UnicodeError is a ValueError
        raise Refusal(400, "The body is not valid JSON in UTF-8, without NaN and infinity") from None
    return value


def _depth(text: str) -> int:
    """An upper bound, as brackets inside strings count too only while they are open."""
    depth = deepest = 0
    inside = escaped = False
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    for character in text:
        if inside:
            escaped, inside = (False, True) if escaped else (character == "\\", character != '"')
        elif character == '"':
            inside = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def stops_of(body: _Sampled) -> tuple[str, ...]:
    stops = [body.stop] if isinstance(body.stop, str) else body.stop or []
    if len(stops) > MAX_STOPS or any(not stop or len(stop) > MAX_STOP_CHARACTERS for stop in stops):
        raise Refusal(400, f"'stop' takes up to {MAX_STOPS} strings of 1 to {MAX_STOP_CHARACTERS} characters", param="stop")
    return tuple(stops)


def sampling_of(body: ChatBody | CompletionBody, *, prompt_tokens: int, max_length: int) -> SamplingParams:
    """The sampling that a body asks for; Refusal when prompt and answer do not fit into the model's context."""
    room = max_length - prompt_tokens
    if isinstance(body, ChatBody):
        wanted = body.max_completion_tokens or body.max_tokens or room
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        if body.top_logprobs is not None and not body.logprobs:
            raise Refusal(400, "'top_logprobs' needs 'logprobs': true", param="top_logprobs")
    else:
        wanted, logprobs = body.max_tokens or 16, body.logprobs
    if room < 1 or wanted > room:
        raise Refusal(
            400,
            f"This model's maximum context length is {max_length} tokens. However, you requested {max(wanted, 1)} output tokens "
            f"and your prompt contains {prompt_tokens} input tokens. Please reduce the length of the input prompt or the number "
            "of requested output tokens.",
            param="max_tokens",
        )
    return SamplingParams(
        max_tokens=wanted,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=body.seed,
        stop=stops_of(body),
        stop_token_ids=frozenset(body.stop_token_ids or ()),
        ignore_eos=bool(body.ignore_eos),
        skip_special_tokens=body.skip_special_tokens is not False,
        logprobs=logprobs,
    )
