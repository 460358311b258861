"""Rollouts from a vLLM server: what sampler.py gives, computed by another process or machine.

    sampler = ServedSampler("http://127.0.0.1:8000", model, base="embedded:tiny", folder=job / "rollout", ...)
    rollouts = sampler(prompts, streams, max_new_tokens=128, temperature=1.0)
    sampler.refresh()                                   # the policy was trained: the next call uploads its weights
    sampler.close()

Adapters go over a disk that both see, each version in its own folder and under its own name: vLLM's in-place reload would mix
versions and keeps reading the old cache. An old version is unloaded before its folder is deleted, else the server dies. A server
that restarts has forgotten them; it gets the newest again and is asked for what is missing.

Leaves out: servers without a shared disk, pushing weights from GPU to GPU, several servers.
"""

import asyncio
import hashlib
import math
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel, ValidationError

from medloop.errors import ConfigError, ResultError
from medloop.models.adapter import save_adapter
from medloop.models.rollout.rollouts import Rollout, RolloutRequest, requests_for, stream_seed
from medloop.models.rollout.sampler import OnRows
from medloop.store.files.artifacts import new_artifact

RETRY_DELAYS_S = (1.0, 2.0, 4.0, 8.0, 16.0)  # between tries while a server is away or full
READ_TIMEOUT_S = 600.0  # one answer
NO_TRUNCATION = {
    # Nothing is removed from the distribution, whatever the model's own generation settings are.
    "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "logprobs": 0, "return_token_ids": True, "skip_special_tokens": False,
}  # fmt: skip


class ServedSampler:
    """A policy's samples from a server that holds its base model."""

    backend = "vllm"

    def __init__(self, url: str, model: Any, *, base: str, stop_ids: Sequence[int], folder: Path, key: str = "") -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.model, self.base, self.stop_ids, self.folder = model, base, sorted(set(stop_ids)), folder
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._family = "medloop-" + hashlib.sha256(f"{socket.gethostname()}:{folder}".encode()).hexdigest()[:10]
        self._version = 0
        self._name: str | None = None
        self._stale = True
        try:
            self._unload_all()
        except _Unavailable as error:
            raise ConfigError(f"The rollout server {self.url} {error}", "Start it, or leave rollout_url empty") from None

    def refresh(self) -> None:
        """Upload the adapter before the next call."""
        self._stale = True

    def close(self) -> None:
        """Leave nothing behind, on the server or on the disk."""
        with suppress(_Unavailable):
            self._unload_all()

    def __call__(
        self,
        prompts: Sequence[Sequence[int]],
        streams: Sequence[str],
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 64,
        progress: OnRows | None = None,
    ) -> list[Rollout]:
        """One rollout per prompt, in order, with `batch_size` requests at a time."""
        requests = requests_for(prompts, streams)
        sampling = {"max_tokens": max_new_tokens, "temperature": temperature, "stop_token_ids": self.stop_ids} | NO_TRUNCATION
        rollouts: dict[int, Rollout] = {}

        def on_rollout(index: int, rollout: Rollout) -> None:
            rollouts[index] = rollout
            if progress is not None:
                progress(len(rollouts), len(requests))

        for delay in (*RETRY_DELAYS_S, None):
            try:
                self._upload(max_new_tokens + max((len(request.prompt) for request in requests), default=0))
                missing = [request for request in requests if request.index not in rollouts]
                asyncio.run(self._generate(missing, sampling, batch_size, on_rollout))
                return [rollouts[index] for index in range(len(requests))]
            except _Unavailable as error:
                if delay is None:
                    raise ResultError(
                        f"The rollout server {self.url} {error}", "Start it again and run the same command: it continues"
                    ) from None
                self._stale = self._stale or error.lost_adapter
                time.sleep(delay)
        raise AssertionError("the last try returns or raises")

    def _upload(self, tokens: int) -> None:
        """Load the policy as it is now, under a new name, and unload the version before it."""
        if not self._stale:
            return
        self._check_length(tokens)
        self._version += 1
        name = f"{self._family}-{self._version}-{time.time_ns():x}"
        with new_artifact(self.folder / name) as temp:
            save_adapter(temp, self.model, self.base)
        body = {"lora_name": name, "lora_path": str((self.folder / name).absolute())}
        response = self._call("POST", "/v1/load_lora_adapter", body)
        if response.status_code != 200:
            raise ConfigError(
                f"The rollout server {self.url} did not load the adapter (status {response.status_code})",
                "Start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora and a --max-lora-rank that fits, where it can "
                f"read {self.folder}",
            )
        self._name, self._stale = name, False
        self._unload_all(but=name)

    def _check_length(self, tokens: int) -> None:
        limits = [card.get("max_model_len") for card in self._models() if not card.get("parent")]
        if limits and isinstance(limits[0], int) and limits[0] < tokens:
            raise ConfigError(
                f"The rollout server {self.url} takes {limits[0]} tokens, this run needs {tokens}",
                f"Start it with --max-model-len {tokens} or more, or lower max_prompt and max_new_tokens",
            )

    def _unload_all(self, but: str | None = None) -> None:
        """Unload every version of this run, also those of a run that was killed; then delete their folders."""
        for card in self._models():
            name = str(card.get("id", ""))
            if name.startswith(self._family) and name != but:
                self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        for old in self.folder.glob(f"{self._family}-*"):
            if old.name != but:
                shutil.rmtree(old, ignore_errors=True)

    def _models(self) -> list[dict[str, Any]]:
        response = self._call("GET", "/v1/models")
        try:
            return [dict(card) for card in response.json()["data"]] if response.status_code == 200 else []
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self.url} does not answer like a vLLM server", "Give the address of one, without a path"
            ) from None

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        try:
            with httpx.Client(trust_env=False, timeout=httpx.Timeout(60.0, connect=5.0), headers=self._headers) as client:
                response = client.request(method, self.url + path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Unavailable(f"cannot be reached ({type(error).__name__})") from None
        if response.status_code in (401, 403):
            raise ConfigError(f"The rollout server {self.url} does not accept the key", "Set rollout.key (MEDLOOP_ROLLOUT__KEY)")
        if response.status_code >= 500:
            raise _Unavailable(f"answers with status {response.status_code}")
        return response

    async def _generate(
        self,
        requests: Sequence[RolloutRequest],
        sampling: dict[str, Any],
        concurrency: int,
        on_rollout: Callable[[int, Rollout], None],
    ) -> None:
        """All requests, `concurrency` at a time. The first failure cancels the others; finished ones are kept."""
        limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        timeout = httpx.Timeout(READ_TIMEOUT_S, connect=5.0, pool=None)
        slots = asyncio.Semaphore(concurrency)
        async with httpx.AsyncClient(trust_env=False, timeout=timeout, limits=limits, headers=self._headers) as client:

            async def generate(request: RolloutRequest) -> None:
                async with slots:
                    on_rollout(request.index, await self._complete(client, request, sampling))

            tasks = [asyncio.create_task(generate(request)) for request in requests]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _complete(self, client: httpx.AsyncClient, request: RolloutRequest, sampling: dict[str, Any]) -> Rollout:
        body = {"model": self._name, "prompt": list(request.prompt), "seed": stream_seed(request.stream), **sampling}
        try:
            response = await client.post(f"{self.url}/v1/completions", json=body)
        except httpx.HTTPError as error:
            raise _Unavailable(f"broke the connection ({type(error).__name__})") from None
        status = response.status_code
        if status == 404:
            raise _Unavailable("has lost the adapter", lost_adapter=True)
        if status == 429 or status >= 500:
            raise _Unavailable(f"answers with status {status}")
        if status != 200:
            raise ConfigError(f"The rollout server {self.url} refused a prompt (status {status})", "Look at its log")
        try:
            choice = _Completions.model_validate_json(response.content).choices[0]
        except (ValidationError, IndexError):
            raise ConfigError(f"{self.url} answers without token ids and log-probabilities", "Use vLLM 0.10 or newer") from None
        return _rollout(request, choice)


class _Unavailable(Exception):
    """The server cannot answer now; with `lost_adapter` it needs the adapter again."""

    def __init__(self, message: str, *, lost_adapter: bool = False) -> None:
        super().__init__(message)
        self.lost_adapter = lost_adapter


class _Logprobs(BaseModel):
    token_logprobs: list[float]


class _Choice(BaseModel):
    token_ids: list[int]
    logprobs: _Logprobs
    finish_reason: str


class _Completions(BaseModel):
    choices: list[_Choice]


def _rollout(request: RolloutRequest, choice: _Choice) -> Rollout:
    logprobs = choice.logprobs.token_logprobs
    consistent = len(logprobs) == len(choice.token_ids) > 0 and choice.finish_reason in ("stop", "length")
    if not consistent or not all(math.isfinite(value) and value <= 1e-3 for value in logprobs):
        raise _Unavailable("gave an answer whose log-probabilities do not match its tokens")
    ended = choice.finish_reason == "stop"
    return Rollout(tuple(request.prompt), tuple(choice.token_ids), tuple(logprobs), ended, request.stream)
