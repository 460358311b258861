"""Rollouts from a vLLM server: what models/rollout/sampler.py gives, made by another process or machine.

    sampler = ServedSampler("http://127.0.0.1:8000", model, base="embedded:tiny", folder=job / "rollout", ...)
    rows = sampler(prompts, streams, max_new_tokens=128, temperature=1.0)
    sampler.refresh()                                   # the policy has learnt: the next call hands over its weights
    sampler.close()

Adapters go over a disk that both see, each version in a folder and under a name of its own: vLLM's in-place reload would blend
versions and keeps reading the old cache. An old version is unloaded before its folder goes, else the server dies. A server that
restarts has forgotten them; it is handed the newest again and asked for what is missing.

Leaves out: servers without a shared disk, pushing weights from GPU to GPU, several servers.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import shutil
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from pydantic import BaseModel, ValidationError

from medloop.errors import ConfigError, ResultError
from medloop.models.adapter import save_adapter
from medloop.models.rollout.sampler import Progress, Rollout, RolloutRequest
from medloop.store.files.artifacts import new_artifact

PATIENCE = (1.0, 2.0, 4.0, 8.0, 16.0)  # seconds between tries while a server is away or full
READ_S = 600.0  # one answer


class ServedSampler:
    """A policy's samples from a server that holds its base model."""

    way = "vllm"

    def __init__(self, url: str, model: Any, *, base: str, stop_ids: Sequence[int], folder: Path, key: str = "") -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.model, self.base, self.stops, self.folder = model, base, sorted(set(stop_ids)), folder
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._family = "medloop-" + hashlib.sha256(f"{socket.gethostname()}:{folder}".encode()).hexdigest()[:10]
        self._version = 0
        self._name: str | None = None
        self._stale = True
        try:
            self._forget_all()
        except _Away as error:
            raise ConfigError(f"The rollout server {self.url} {error}", "Start it, or leave rollout_url empty") from None

    def refresh(self) -> None:
        """The adapter has changed."""
        self._stale = True

    def close(self) -> None:
        """Leave nothing behind, on the server or on the disk."""
        with suppress(_Away):
            self._forget_all()

    def __call__(
        self,
        prompts: Sequence[Sequence[int]],
        streams: Sequence[str],
        *,
        max_new_tokens: int,
        temperature: float = 1.0,
        batch_size: int = 64,
        progress: Progress | None = None,
    ) -> list[Rollout]:
        """One sample per prompt, in order, `batch_size` of them under way at a time."""
        rows = [RolloutRequest(at, *both) for at, both in enumerate(zip(prompts, streams, strict=True))]
        ask = {"max_tokens": max_new_tokens, "temperature": temperature, "stop_token_ids": self.stops} | PLAIN
        found: dict[int, Rollout] = {}

        def keep(row: RolloutRequest, said: Rollout) -> None:
            found[row.at] = said
            if progress is not None:
                progress(len(found), len(rows))

        for pause in (*PATIENCE, None):
            try:
                self._hand_over(max_new_tokens + max((len(row.prompt) for row in rows), default=0))
                asyncio.run(self._ask([row for row in rows if row.at not in found], ask, batch_size, keep))
                return [found[at] for at in range(len(rows))]
            except _Away as error:
                if pause is None:
                    raise ResultError(
                        f"The rollout server {self.url} {error}", "Start it again and run the same command: it goes on"
                    ) from None
                self._stale = self._stale or error.forgot
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _hand_over(self, tokens: int) -> None:
        """The policy as it is now, under a new name; the version before it goes."""
        if not self._stale:
            return
        self._check_length(tokens)
        self._version += 1
        name = f"{self._family}-{self._version}-{time.time_ns():x}"
        with new_artifact(self.folder / name) as temp:
            save_adapter(temp, self.model, self.base)
        said = self._call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str((self.folder / name).absolute())})
        if said.status_code != 200:
            raise self._refused(said)
        self._name, self._stale = name, False
        self._forget_all(but=name)

    def _check_length(self, tokens: int) -> None:
        rooms = [card.get("max_model_len") for card in self._models() if not card.get("parent")]
        if rooms and isinstance(rooms[0], int) and rooms[0] < tokens:
            raise ConfigError(
                f"The rollout server {self.url} takes {rooms[0]} tokens, this run needs {tokens}",
                f"Start it with --max-model-len {tokens} or more, or lower max_prompt and max_new_tokens",
            )

    def _forget_all(self, but: str | None = None) -> None:
        """Unload every version of this run, also those of a run that was killed; then their folders."""
        for card in self._models():
            name = str(card.get("id", ""))
            if name.startswith(self._family) and name != but:
                self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        for old in self.folder.glob(f"{self._family}-*"):
            if old.name != but:
                shutil.rmtree(old, ignore_errors=True)

    def _models(self) -> list[dict[str, Any]]:
        said = self._call("GET", "/v1/models")
        try:
            return [dict(card) for card in said.json()["data"]] if said.status_code == 200 else []
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{self.url} does not speak as a vLLM server", "Name the address of one, without a path") from None

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        try:
            with httpx.Client(trust_env=False, timeout=httpx.Timeout(60.0, connect=5.0), headers=self._headers) as client:
                said = client.request(method, self.url + path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Away(f"cannot be reached ({type(error).__name__})") from None
        if said.status_code in (401, 403):
            raise ConfigError(f"The rollout server {self.url} does not accept the key", "Set rollout.key (MEDLOOP_ROLLOUT__KEY)")
        if said.status_code >= 500:
            raise _Away(f"answers with status {said.status_code}")
        return said

    def _refused(self, said: httpx.Response) -> ConfigError:
        return ConfigError(
            f"The rollout server {self.url} did not load the adapter (status {said.status_code})",
            f"Start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora and a --max-lora-rank that fits, where it can read "
            f"{self.folder}",
        )

    async def _ask(self, rows: Sequence[RolloutRequest], ask: dict[str, Any], at_once: int, keep: Any) -> None:
        """All rows, so many at a time. The first failure ends the others; what had come stays."""
        limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
        timeout = httpx.Timeout(READ_S, connect=5.0, pool=None)
        lanes = asyncio.Semaphore(at_once)
        async with httpx.AsyncClient(trust_env=False, timeout=timeout, limits=limits, headers=self._headers) as client:

            async def one(row: RolloutRequest) -> None:
                async with lanes:
                    keep(row, await self._sample(client, row, ask))

            tasks = [asyncio.create_task(one(row)) for row in rows]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _sample(self, client: httpx.AsyncClient, row: RolloutRequest, ask: dict[str, Any]) -> Rollout:
        body = {"model": self._name, "prompt": list(row.prompt), "seed": seed_of(row.stream), **ask}
        try:
            said = await client.post(f"{self.url}/v1/completions", json=body)
        except httpx.HTTPError as error:
            raise _Away(f"broke off ({type(error).__name__})") from None
        if said.status_code == 404:
            raise _Away("has lost the adapter", forgot=True)
        if said.status_code == 429 or said.status_code >= 500:
            raise _Away(f"answers with status {said.status_code}")
        if said.status_code != 200:
            raise ConfigError(f"The rollout server {self.url} refused a prompt (status {said.status_code})", "Look at its log")
        try:
            choice = _Reply.model_validate_json(said.content).choices[0]
        except (ValidationError, IndexError):
            raise ConfigError(f"{self.url} answers without token ids and log-probabilities", "Use vLLM 0.10 or newer") from None
        return _sampled(row, choice)


PLAIN = {
    # Nothing is cut off the distribution, whatever the model's own generation settings are.
    "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
    "logprobs": 0, "return_token_ids": True, "skip_special_tokens": False,
}  # fmt: skip


class _Away(Exception):
    """The server cannot answer now; `forgot` says that it must be handed the adapter again."""

    def __init__(self, what: str, *, forgot: bool = False) -> None:
        super().__init__(what)
        self.forgot = forgot


class _Logprobs(BaseModel):
    token_logprobs: list[float]


class _Choice(BaseModel):
    token_ids: list[int]
    logprobs: _Logprobs
    finish_reason: str


class _Reply(BaseModel):
    choices: list[_Choice]


def seed_of(stream: str) -> int:
    """The server's seed of a row, from the name of its stream."""
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:8], "big") >> 1


def _sampled(row: RolloutRequest, choice: _Choice) -> Rollout:
    logprobs = choice.logprobs.token_logprobs
    fits = len(logprobs) == len(choice.token_ids) > 0 and choice.finish_reason in ("stop", "length")
    if not fits or not all(math.isfinite(value) and value <= 1e-3 for value in logprobs):
        raise _Away("gave an answer that does not fit its tokens")
    return Rollout(tuple(row.prompt), tuple(choice.token_ids), tuple(logprobs), choice.finish_reason == "stop", row.stream)
