"""Rollouts from a server: the same answers as here, the newest weights always, and a server that fails costs time, not rows."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from peft import get_peft_model

from medloop.contracts import ModelRef
from medloop.errors import ConfigError, ResultError
from medloop.models.adapter import fresh_lora
from medloop.models.find import resolve
from medloop.models.load import load
from medloop.models.rollout import served
from medloop.models.rollout.rollouts import stream_seed
from medloop.models.rollout.sampler import Sampler, stop_ids
from medloop.models.rollout.served import ServedSampler
from medloop.settings import Settings
from medloop.testing.models import tiny_model
from medloop.testing.rollout_server import RolloutServer

PROMPTS = [[5, 6, 7], [8, 9], [5, 6, 7], [11, 12, 13, 14]]
STREAMS = ["a", "b", "c", "d"]
EMBEDDED = ModelRef(base="embedded:tiny")  # vLLM has no kernels for the still smaller ones


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    home = tmp_path_factory.mktemp("served")
    return Settings(home=home, model=str(tiny_model(home / "base")), device="cpu", threads=1, offline=True)


@pytest.fixture
def policy(settings: Settings) -> Any:
    return adapted(ModelRef(base=settings.model), settings)


def adapted(ref: ModelRef, settings: Settings) -> Any:
    """With an adapter that does something: its second matrix is not 0."""
    torch.manual_seed(0)
    loaded = load(ref, settings)
    model = get_peft_model(loaded.model, fresh_lora(loaded.model, r=4, lora_alpha=8))
    move(model)
    return replace(loaded, model=model)


def move(model: Any) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.add_(torch.randn_like(weight) * 0.1)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "RETRY_DELAYS_S", (0.0, 0.0, 0.0))


def sampler_of(policy: Any, url: str, folder: Path, **more: Any) -> ServedSampler:
    stops = stop_ids(policy.model, policy.tokenizer)
    return ServedSampler(url, policy.model, base=policy.name, stop_ids=stops, folder=folder, **more)


def ask(sampler: Any, streams: list[str] = STREAMS, **more: Any) -> Any:
    return sampler(PROMPTS, streams, **{"max_new_tokens": 9, "temperature": 0.7, **more})


def here(policy: Any) -> Any:
    stops = stop_ids(policy.model, policy.tokenizer)
    return ask(Sampler(policy.model, stop_ids=stops, pad_id=0), [str(stream_seed(stream)) for stream in STREAMS])


@pytest.fixture
def server(settings: Settings) -> Iterator[RolloutServer]:
    with RolloutServer(ModelRef(base=settings.model), settings) as server:
        yield server


def assert_same(first: Any, second: Any) -> None:
    assert [row.tokens for row in first] == [row.tokens for row in second]
    assert [row.ended for row in first] == [row.ended for row in second]
    for a, b in zip(first, second, strict=True):
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)


def test_it_gives_what_the_policy_would_have_said_here(policy: Any, server: RolloutServer, tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []
    rollouts = ask(sampler_of(policy, server.url, tmp_path), progress=lambda done, total: counts.append((done, total)))
    assert_same(rollouts, here(policy))
    assert [row.stream for row in rollouts] == STREAMS and counts[-1] == (4, 4)


def test_after_a_refresh_the_server_samples_the_new_weights_under_a_new_name(
    policy: Any, server: RolloutServer, tmp_path: Path
) -> None:
    sampler = sampler_of(policy, server.url + "/v1/", tmp_path)
    before = ask(sampler)
    move(policy.model)
    assert_same(ask(sampler), before)  # not yet told
    sampler.refresh()
    assert_same(ask(sampler), here(policy))
    assert len(set(server.loaded)) == 2 and list(server.adapters) == [server.loaded[-1]]
    assert [path.name for path in tmp_path.iterdir()] == [server.loaded[-1]]


def test_closing_leaves_nothing_on_the_server_or_the_disk(policy: Any, server: RolloutServer, tmp_path: Path) -> None:
    sampler = sampler_of(policy, server.url, tmp_path)
    ask(sampler)
    sampler.close()
    assert not server.adapters and not list(tmp_path.iterdir())


def test_a_run_that_goes_on_clears_what_the_killed_one_left_but_nothing_of_others(
    policy: Any, server: RolloutServer, tmp_path: Path
) -> None:
    mine, others = sampler_of(policy, server.url, tmp_path / "mine"), sampler_of(policy, server.url, tmp_path / "others")
    ask(mine), ask(others)
    name = others._name
    ask(sampler_of(policy, server.url, tmp_path / "mine"))
    assert len(server.adapters) == 2 and name in server.adapters
    assert len(list((tmp_path / "mine").iterdir())) == 1
    assert_same(ask(others), here(policy))


@pytest.mark.parametrize("fault", ["restart", "error_500", "rate", "reset", "short_logprobs", "nan"])
def test_a_passing_fault_costs_no_row(policy: Any, server: RolloutServer, tmp_path: Path, fault: str) -> None:
    server.faults[:] = ["ok", fault]
    assert_same(ask(sampler_of(policy, server.url, tmp_path)), here(policy))


def test_a_server_that_stays_broken_ends_the_run_with_a_sentence(policy: Any, server: RolloutServer, tmp_path: Path) -> None:
    server.faults[:] = ["error_500"] * 100
    with pytest.raises(ResultError, match="answers with status 500"):
        ask(sampler_of(policy, server.url, tmp_path))


def test_no_server_is_said_before_anything_starts(policy: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be reached"):
        sampler_of(policy, "http://127.0.0.1:9", tmp_path)


def test_a_server_without_token_ids_is_refused(policy: Any, server: RolloutServer, tmp_path: Path) -> None:
    server.faults[:] = ["no_tokens"]
    with pytest.raises(ConfigError, match="without token ids"):
        ask(sampler_of(policy, server.url, tmp_path))


def test_what_the_server_was_not_started_with_is_named(policy: Any, settings: Settings, tmp_path: Path) -> None:
    ref = ModelRef(base=settings.model)
    with RolloutServer(ref, settings, lora=False) as server, pytest.raises(ConfigError, match="did not load the adapter"):
        ask(sampler_of(policy, server.url, tmp_path))
    with RolloutServer(ref, settings, max_model_len=12) as server, pytest.raises(ConfigError, match="needs 13"):
        ask(sampler_of(policy, server.url, tmp_path))
    with RolloutServer(ref, settings, key="secret") as server:
        with pytest.raises(ConfigError, match="does not accept the key"):
            ask(sampler_of(policy, server.url, tmp_path))
        assert_same(ask(sampler_of(policy, server.url, tmp_path, key="secret")), here(policy))


@pytest.fixture(scope="module")
def vllm(settings: Settings) -> Iterator[str]:
    """A real one, where the environment names its interpreter: VLLM_PYTHON=/path/to/venv/bin/python."""
    python = os.environ.get("VLLM_PYTHON")
    if not python:
        pytest.skip("VLLM_PYTHON does not name the Python of a vLLM installation")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = (
        f"--model {resolve(EMBEDDED, settings).folder} --served-model-name base --host 127.0.0.1 --port {port} --dtype float32 --max-model-len 256 "
        "--max-num-seqs 16 --enforce-eager --kv-cache-memory-bytes 67108864 --enable-lora --max-loras 2 --max-lora-rank 16 "
        "--max-cpu-loras 4 --logprobs-mode processed_logprobs"
    ).split()
    environment = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    environment |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_HOST_IP": "127.0.0.1"}
    child = subprocess.Popen([python, "-m", "vllm.entrypoints.openai.api_server", *flags], env={**os.environ, **environment})
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 300
    try:
        while time.monotonic() < deadline and child.poll() is None:
            try:
                if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(1)
        yield url
    finally:
        child.terminate()
        child.wait(60)


@pytest.mark.slow
def test_a_real_server_samples_the_policy_with_its_own_log_probabilities(vllm: str, settings: Settings, tmp_path: Path) -> None:
    policy = adapted(EMBEDDED, settings)
    sampler = sampler_of(policy, vllm, tmp_path)
    for _ in range(3):
        rows = ask(sampler)
        assert [row.tokens for row in ask(sampler)] == [row.tokens for row in rows]  # the seed decides
        for row in rows:
            ids = torch.tensor([[*row.prompt, *row.tokens]])
            with torch.no_grad():
                scores = (policy.model(input_ids=ids).logits[0, len(row.prompt) - 1 : -1] / 0.7).log_softmax(-1)
            own = scores.gather(1, torch.tensor(row.tokens)[:, None]).squeeze(1)
            assert row.logprobs == pytest.approx(own.tolist(), abs=1e-4)
        move(policy.model)
        sampler.refresh()
    sampler.close()
    assert [card["id"] for card in httpx.get(f"{vllm}/v1/models").json()["data"]] == ["base"]
