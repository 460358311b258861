"""The body of `POST /v1/chat/completions`, as far as an assistant with guards can keep its promises: text in, one text out.

    request = parse_request(body)              # or ChatError, with OpenAI's `param` and `code`
    request.conversation()                     # messages that alternate; a system message first if there is one

Unknown fields are refused: a misspelt one would be ignored in silence, and some servers take a chat template from the body.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from medloop.contracts import Message
from medloop.errors import MedloopError
from medloop.knobs import problem_text
from medloop.privacy.clear_names import check_name

EPISODE = "episode_id"  # in `metadata`: the conversation that an answer belongs to
MOST_MESSAGES = 200
LONGEST_TEXT = 100_000  # characters of one message
Json = dict[str, Any]


class ChatError(MedloopError):
    """A failure in OpenAI's shape: status, type, the field it is about, a code."""

    def __init__(
        self, status: int, what: str, to_do: str = "", *, kind: str = "invalid_request_error", param: str | None = None,
        code: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(what, to_do)
        self.status, self.kind, self.param, self.code = status, kind, param, code

    def body(self) -> Json:
        return openai_error(str(self), self.kind, self.param, self.code)


def openai_error(message: str, kind: str, param: str | None = None, code: str | None = None) -> Json:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _role(value: object) -> object:
    if value in ("tool", "function"):
        raise ValueError("messages of tools are not supported: the tools of the assistant run on this server")
    return value


def _content(value: object) -> object:
    """Plain text; a list of text parts is joined."""
    if not isinstance(value, list):
        if value is None:
            raise ValueError("must be text; calls of tools are not supported")
        return value
    parts = []
    for part in value:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ValueError("must be text: images, audio and files are not supported")
        parts.append(part["text"])
    return "\n".join(parts)


class GatewayMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Annotated[Literal["system", "developer", "user", "assistant"], BeforeValidator(_role)]
    content: Annotated[str, BeforeValidator(_content), Field(min_length=1, max_length=LONGEST_TEXT)]
    name: str | None = None


class GatewayStreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


Stop = str | Annotated[list[str], Field(max_length=16)]


class ChatRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, protected_namespaces=())

    model: str = Field("medloop", max_length=200)
    messages: list[GatewayMessage] = Field(min_length=1, max_length=MOST_MESSAGES)
    stream: bool | None = False
    stream_options: GatewayStreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: Stop | None = None
    seed: int | None = None
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    user: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    metadata: dict[str, Annotated[str, Field(max_length=512)]] | None = Field(None, max_length=16)
    store: bool | None = None

    @property
    def episode(self) -> str | None:
        return (self.metadata or {}).get(EPISODE)

    @property
    def streams(self) -> bool:
        return bool(self.stream)

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def check_tokens(self, most: int) -> None:
        """ChatError for a request of more words than the settings allow: it would keep a model server busy for nothing."""
        for name, wanted in (("max_tokens", self.max_tokens), ("max_completion_tokens", self.max_completion_tokens)):
            if wanted is not None and wanted > most:
                raise ChatError(400, f"{name} is above the limit of this server", f"Ask for {most} at most", param=name)

    def sampling(self) -> Json:
        """What goes to the model server beside model and messages."""
        names = {"temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty"}
        values = self.model_dump(include=names, exclude_none=True)
        limit = self.max_completion_tokens or self.max_tokens
        return values | ({} if limit is None else {"max_tokens": limit})

    def conversation(self) -> tuple[Message, ...]:
        """The messages with neighbours of one role joined, since chat templates and traces need turns that alternate."""
        turns: list[tuple[str, str]] = []
        for message in self.messages:
            role = "system" if message.role == "developer" else message.role
            if turns and turns[-1][0] == role:
                turns[-1] = (role, f"{turns[-1][1]}\n\n{message.content}")
            else:
                turns.append((role, message.content))
        roles = [role for role, _ in turns]
        spoken = roles[1:] if roles[0] == "system" else roles
        if "system" in spoken:
            raise ChatError(400, "A system message stands before all others", param="messages")
        if not spoken or spoken[0] != "user" or spoken[-1] != "user":
            raise ChatError(400, "The first and the last message of a conversation are the user's", param="messages")
        return tuple(Message.model_validate({"role": role, "content": content}) for role, content in turns)


def parse_request(body: bytes) -> ChatRequest:
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from None


def checked_episode(episode: str) -> str:
    """An id that the caller made up, which is stored in clear."""
    try:
        return check_name(episode)
    except ValueError as error:
        raise ChatError(400, f"The episode id cannot be used: {error}", param=f"metadata.{EPISODE}") from None


def _refusal(error: ValidationError) -> ChatError:
    problem = error.errors(include_url=False, include_input=False)[0]
    if problem["type"] == "json_invalid":
        return ChatError(400, "The body is not valid JSON", "Send one JSON object")
    # Parts of a union and names that the caller made up are no field names.
    names = [str(part)[:64] for part in problem["loc"] if str(part) not in ("str", "list[str]")]
    param = ".".join(name if name.isprintable() else "?" for name in names) or None
    if problem["type"] == "extra_forbidden":
        tools = param in ("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls")
        what = "Calls of tools are not supported" if tools else f"Unsupported field: {param}"
        return ChatError(400, what, "Leave it out", param=param, code="unsupported_parameter")
    if param == "n":
        return ChatError(400, "n must be 1: every answer is checked and traced by itself", param=param)
    if param == "logprobs":
        return ChatError(400, "logprobs are not supported: they would show words that a guard removed", param=param)
    return ChatError(400, f"{param or 'The body'}: {problem_text(problem)}", param=param)
