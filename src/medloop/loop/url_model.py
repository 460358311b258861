"""A model behind a URL (OpenAI-compatible `/v1/chat/completions`), asked like a local one.

    parse_url("http://127.0.0.1:8000#qwen")                            -> address and name, or ConfigError
    generate = UrlGenerator(address, key="", deadline_s=120)
    generate(prompts, max_new_tokens=256, ...)                         # `batch_size` requests at a time

One deadline covers an answer with all its retries. An answer that does not come has `finish_reason="error"` and the reason in
`error`; it counts as missing, is never stored, and the next run asks again. Text that leaves this machine is scrubbed first.
"""

import asyncio
import ipaddress
import json
import random
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import certifi
import httpx

from medloop.contracts import Completion, Message, sha256_id
from medloop.errors import ConfigError
from medloop.evaluate.answer_cache import prompt_id
from medloop.evaluate.examined import OnAnswers, Progress
from medloop.models.context_limits import ContextLimits
from medloop.models.context_prompt import with_context
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.teacher.failures import Failure
from medloop.teacher.key_guard import KeyGuard
from medloop.teacher.wire import Reply, post

DEADLINE_S = 120.0  # one answer, with all retries
ATTEMPTS = 4
BACKOFF_S = 0.5
RETRIED = frozenset({"unreachable", "connection", "rate", "server", "unreadable"})
FATAL = frozenset({"bad_key", "no_balance"})  # every other request would fail alike
GIVE_UP = 5  # answers in a row that the server did not give; the rest are missing at once
MAX_BYTES = 4_000_000  # of a reply


@dataclass(frozen=True)
class ModelAddress:
    """Where a model answers, and its name there."""

    url: str
    name: str

    @property
    def spec(self) -> str:
        return f"{self.url}#{self.name}"

    @property
    def identity(self) -> dict[str, str | None]:
        """Nobody can hash a model behind a URL: its answers are stored under its address and name."""
        return {"url": sha256_id(self.spec)}

    @property
    def is_local(self) -> bool:
        """Whether the text stays on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def is_url(base: str) -> bool:
    return re.match(r"https?://", base) is not None


def parse_url(spec: str) -> ModelAddress:
    """`http://HOST[:PORT][/v1]#NAME`. A password in it is refused: it would be in the report."""
    url, _, name = spec.partition("#")
    try:
        parts = urlsplit(url)
        host, has_password = parts.hostname, parts.username is not None
    except ValueError:
        host, has_password = None, False
    if has_password:
        raise ConfigError("The URL of a model contains a user name or password", "Set evaluate.key (MEDLOOP_EVALUATE__KEY)")
    if not host or not re.fullmatch(r"[\w.:/+@-]+", name):
        raise ConfigError(f"--model is '{spec}', which is not URL#NAME", "Example: http://127.0.0.1:8000#qwen2.5-7b")
    path = url.rstrip("/")
    return ModelAddress(path if path.endswith("/v1") else f"{path}/v1", name)


@dataclass
class UrlGenerator:
    """Prompts to completions over HTTP. Without a tokenizer at hand, all `top_k` context passages stand in the prompt, whole."""

    address: ModelAddress
    key: str = ""
    deadline_s: float = DEADLINE_S
    _in_a_row: int = field(default=0, init=False)  # answers that the server did not give
    _answered: bool = field(default=False, init=False)

    def with_passages(
        self, messages: Sequence[Message], passages: Sequence[str], limits: ContextLimits
    ) -> tuple[Sequence[Message], tuple[str, ...]]:
        shown = tuple(passages[: limits.top_k])
        return with_context(messages, shown), shown

    def __call__(
        self, prompts: Sequence[Sequence[Message]], *, max_new_tokens: int, temperature: float, seed: int, batch_size: int,
        progress: Progress | None = None, on_answers: OnAnswers | None = None,
    ) -> list[Completion]:  # fmt: skip
        done = 0

        def answered(index: int, completion: Completion) -> None:
            nonlocal done
            done += 1
            if on_answers is not None:
                on_answers({index: completion})
            if progress is not None:
                progress(done, len(prompts))

        sampling = {"max_tokens": max_new_tokens, "temperature": temperature, **({"seed": seed} if temperature > 0 else {})}
        return asyncio.run(self._all(prompts, sampling, batch_size, answered))

    async def _all(
        self, prompts: Sequence[Sequence[Message]], sampling: dict[str, Any], at_once: int,
        answered: Callable[[int, Completion], None],
    ) -> list[Completion]:  # fmt: skip
        slots = asyncio.Semaphore(at_once)
        tls = ssl.create_default_context(cafile=certifi.where())
        limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
        async with httpx.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits) as connection:

            async def answer(index: int, prompt: Sequence[Message]) -> Completion:
                async with slots:
                    completion = await self._answer(connection, prompt, sampling)
                answered(index, completion)
                return completion

            tasks = [asyncio.create_task(answer(index, prompt)) for index, prompt in enumerate(prompts)]
            try:
                return await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(
        self, connection: httpx.AsyncHTTPTransport, prompt: Sequence[Message], sampling: dict[str, Any]
    ) -> Completion:
        about: dict[str, Any] = {
            "prompt_id": prompt_id(prompt),
            "model": self.address.name,
            "temperature": sampling["temperature"],
        }
        try:
            if self._in_a_row >= GIVE_UP:
                raise Failure("circuit", f"the server failed {GIVE_UP} times in a row")
            async with asyncio.timeout(self.deadline_s):
                reply = await self._with_retries(connection, self._payload(prompt, sampling))
        except Unscrubbable:
            return Completion(**about, text="", finish_reason="error", error="the question may name a person, so it was not sent")
        except TimeoutError:
            return self._failed(about, Failure("timeout", f"no answer within {self.deadline_s:g} s"))
        except Failure as failure:
            return self._failed(about, failure)
        self._in_a_row, self._answered = 0, True
        reason = "length" if reply.finish_reason == "length" else "stop"
        return Completion(**about, text=reply.content, finish_reason=reason, n_tokens=reply.usage.out)

    def _payload(self, prompt: Sequence[Message], sampling: dict[str, Any]) -> bytes:
        scrubber = Scrubber()
        texts = [message.content if self.address.is_local else scrubber.release(message.content) for message in prompt]
        messages = [{"role": message.role, "content": text} for message, text in zip(prompt, texts, strict=True)]
        return json.dumps({"model": self.address.name, "messages": messages, "stream": False, **sampling}).encode()

    def _failed(self, about: dict[str, Any], failure: Failure) -> Completion:
        """No answer, with the reason; what would fail for every question ends the evaluation."""
        if failure.kind in FATAL:
            raise ConfigError(
                f"{self.address.url} refused the request ({failure.detail})", "Set evaluate.key (MEDLOOP_EVALUATE__KEY)"
            )
        if failure.kind == "unreachable" and not self._answered:
            raise ConfigError(f"{self.address.url} cannot be reached ({failure.detail})", "Start the server, or check the URL")
        if failure.kind != "refused":
            self._in_a_row += 1
        return Completion(**about, text="", finish_reason="error", error=f"{failure.kind}: {failure.detail}")

    async def _with_retries(self, connection: httpx.AsyncHTTPTransport, payload: bytes) -> Reply:
        headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "gzip, identity"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._checked(await post(connection, f"{self.address.url}/chat/completions", headers, payload, MAX_BYTES))
            except Failure as failure:
                if failure.kind not in RETRIED or attempt == ATTEMPTS:
                    raise
                wait = BACKOFF_S * 2 ** (attempt - 1) if failure.retry_after is None else failure.retry_after
                await asyncio.sleep(wait * random.uniform(1, 1.5))
        raise AssertionError("the last attempt returns or raises")

    def _checked(self, reply: Reply) -> Reply:
        if KeyGuard(self.key).is_repeated_in(reply.content, reply.model):
            raise Failure("key_echo", "the reply repeats the API key; nothing of it was stored")
        if reply.finish_reason not in ("stop", "length", ""):
            raise Failure("refused", "the service withheld the answer")
        return reply
