"""The embedded server: what it refuses, what it survives, and who gets a row."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config

from medloop.models.rollout.sampler import stop_ids
from medloop.models.rollout.served import ServedSampler
from medloop.models.safety import fingerprint
from medloop.testing.model_server import model_server
from medloop.testing.models import random_adapter, tiny_model

CHAT = {"model": "base", "messages": [{"role": "user", "content": "What helps?"}], "temperature": 0, "max_tokens": 4}


def post(url: str, **more: Any) -> httpx.Response:
    return httpx.post(url, **{"timeout": 120, **more})


def get(url: str, **more: Any) -> httpx.Response:
    return httpx.get(url, **{"timeout": 120, **more})


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.002)


def chat(url: str, **more: Any) -> httpx.Response:
    headers = more.pop("headers", {})
    return post(f"{url}/v1/chat/completions", json={**CHAT, **more}, headers=headers)


@contextmanager
def gate(server: Any) -> Iterator[threading.Event]:
    """No step begins until the gate is opened."""
    batch, opened = server.service.batch, threading.Event()
    step = batch.step

    def gated(tokens: Any) -> Any:
        opened.wait(120)
        return step(tokens)

    batch.step = gated
    try:
        yield opened
    finally:
        opened.set()
        wait_for(lambda: server.service.engine.running == server.service.engine.waiting == 0)
        batch.step = step


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"messages": NaN}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "a"}], "temperature": 1e999}',
        b'{"messages": [{"role": "user", "content": "a"}], "temperature": -1}',
        b'{"messages": [{"role": "user", "content": "a"}], "temperature": "hot"}',
        b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}',
        b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": true}',
        b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1e3}',
        b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": ' + b"9" * 5000 + b"}",
        b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 100000}',
        b'{"messages": [{"role": "user", "content": "a"}], "seed": ' + b"9" * 30 + b"}",
        b'{"messages": [{"role": "user", "content": "a"}], "top_p": 0}',
        b'{"messages": [{"role": "user", "content": "a"}], "n": 2}',
        b'{"messages": [{"role": "user", "content": "a"}], "stop": [""]}',
        b'{"messages": [{"role": "user", "content": "a"}], "stop": {"a": 1}}',
        b'{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]}',
        b'{"messages": [{"role": "user", "content": "a"}], "top_logprobs": 3}',
        b'{"messages": [{"role": "robot", "content": "a"}]}',
        b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
        b'{"messages": []}',
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages": ' + b'{"a":' * 40 + b"1" + b"}" * 40 + b"}",
    ],
)
def test_a_malformed_body_is_400_in_openais_shape(server: Any, content: bytes) -> None:
    response = post(
        f"{server.url}/v1/chat/completions", content=content, headers={"Content-Type": "application/json"}, timeout=120
    )
    assert response.status_code == 400, content[:80]
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["code"] == 400
    assert server.service.ready


def test_other_wrong_requests_have_the_shape_too(server: Any) -> None:
    url = server.url
    wrong = {
        404: get(f"{url}/v1/nothing"),
        405: get(f"{url}/v1/chat/completions"),
        413: post(f"{url}/v1/completions", content=b" " * (5 * 2**20), headers={"Content-Type": "application/json"}),
        415: post(f"{url}/v1/completions", content=json.dumps(CHAT), headers={"Content-Type": "text/plain"}),
        403: get(f"{url}/v1/models", headers={"Host": "[evil"}),
        400: post(f"{url}/v1/completions", json={"model": "base", "prompt": [1, 10**6]}),
    }
    assert {status: response.status_code for status, response in wrong.items()} == {status: status for status in wrong}
    assert all(response.json()["error"]["code"] == status for status, response in wrong.items())


def test_odd_paths_and_names_of_adapters_are_refused(server: Any, tmp_path: Path) -> None:
    for path, status in (("x" * 3000, 404), ("a\0b", 400), (str(tmp_path), 400), ("/etc/passwd", 404), ("", 400)):
        response = post(f"{server.url}/v1/load_lora_adapter", json={"lora_name": "odd", "lora_path": path})
        assert (response.status_code, response.json()["error"]["code"]) == (status, status), path[:20]
    taken = post(f"{server.url}/v1/load_lora_adapter", json={"lora_name": "base", "lora_path": str(tmp_path)})
    assert taken.status_code == 400 and get(f"{server.url}/v1/models", headers={"Host": "evil.example"}).status_code == 403


def test_what_fails_for_one_row_leaves_the_others(server: Any) -> None:
    batch, engine = server.service.batch, server.service.engine
    step, enter = batch.step, batch.enter
    try:
        batch.step = lambda tokens: step(tokens).index_fill(0, torch.tensor([0]), float("nan"))
        assert chat(server.url).status_code == 500 and engine.alive
        batch.step = step

        def no_memory(group: Any) -> Any:
            raise torch.OutOfMemoryError

        batch.enter = no_memory
        refused = chat(server.url)
        assert refused.status_code == 503 and refused.headers["Retry-After"] == "5"
    finally:
        batch.step, batch.enter = step, enter
    assert chat(server.url).status_code == 200 and engine.running == 0


def test_neutral_values_of_options_that_do_not_exist_are_taken(server: Any) -> None:
    more = {"n": 1, "presence_penalty": 0.0, "tools": [], "response_format": {"type": "text"}, "user": "x", "unknown": [1]}
    assert chat(server.url, **more).status_code == 200


def test_a_cancelled_stream_frees_its_row(server: Any) -> None:
    engine, finished = server.service.engine, server.service.metrics.requests.count
    with (
        gate(server) as opened,
        httpx.stream(
            "POST", timeout=120, url=f"{server.url}/v1/chat/completions", json={**CHAT, "stream": True, "max_tokens": 400}
        ) as response,
    ):
        next(response.iter_lines())
        wait_for(lambda: engine.running == 1)
        response.close()
        opened.set()
        wait_for(lambda: engine.running == 0)
    assert server.service.metrics.requests.count == finished  # it left, it was not computed to its end


def test_a_caller_who_goes_away_before_the_answer_frees_row_and_queue(server: Any) -> None:
    engine = server.service.engine
    with gate(server) as opened:

        def leave() -> None:
            with pytest.raises(httpx.TimeoutException):
                post(f"{server.url}/v1/chat/completions", json={**CHAT, "max_tokens": 400}, timeout=1.0)

        threads = [threading.Thread(target=leave) for _ in range(server.service.config.max_rows + 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_for(lambda: engine.waiting == 0)
        opened.set()
        wait_for(lambda: engine.running == 0)


def test_a_full_queue_is_429_with_retry_after_and_others_still_enter(base: Path) -> None:
    with model_server(str(base), max_rows=1, queue_places=4) as server, gate(server) as opened:
        engine, codes = server.service.engine, []
        busy = {"headers": {"X-Medloop-Client": "busy"}}
        threads = [threading.Thread(target=lambda: codes.append(chat(server.url, **busy).status_code)) for _ in range(4)]
        for number, thread in enumerate(threads):
            thread.start()
            wait_for(lambda n=number: engine.running + engine.waiting == n + 1)
        refused = chat(server.url, headers={"X-Medloop-Client": "busy"})
        assert refused.status_code == 429 and int(refused.headers["Retry-After"]) >= 1
        assert refused.json()["error"]["type"] == "RateLimitError"
        late = threading.Thread(target=lambda: codes.append(chat(server.url, headers={"X-Medloop-Client": "late"}).status_code))
        late.start()
        wait_for(lambda: engine.waiting == 4)
        opened.set()
        for thread in (*threads, late):
            thread.join()
        assert codes == [200] * 5


def test_a_dead_engine_answers_everybody_and_is_not_ready(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    with model_server(str(base), max_rows=1, queue_places=8) as server:
        engine, answers = server.service.engine, []
        opened = threading.Event()

        def broken(tokens: Any) -> Any:
            opened.wait(120)
            raise RuntimeError("the device fell off")

        server.service.batch.step = broken
        threads = [threading.Thread(target=lambda: answers.append(chat(server.url))) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(lambda: engine.running + engine.waiting == 3)
        opened.set()
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [500] * 3
        assert all(answer.json()["error"]["type"] == "InternalServerError" for answer in answers)
        assert [get(server.url + path).status_code for path in ("/health", "/ready")] == [503, 503]
        assert chat(server.url).status_code == 503 and "medloop_serve_up 0" in get(f"{server.url}/metrics").text


def test_a_stream_that_loses_its_engine_ends_with_an_error(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    with model_server(str(base)) as server:
        batch, steps = server.service.batch, []
        real = batch.step

        def breaks(tokens: Any) -> Any:
            steps.append(1)
            if len(steps) > 2:
                raise RuntimeError("the device fell off")
            return real(tokens)

        batch.step = breaks
        with httpx.stream(
            "POST", f"{server.url}/v1/completions", json={"prompt": "Hello", "stream": True, "logprobs": 0}
        ) as response:
            lines = [line for line in response.iter_lines() if line]
        assert response.status_code == 200 and json.loads(lines[-2][6:])["error"]["code"] == 500 and lines[-1] == "data: [DONE]"


def test_an_unloaded_adapter_finishes_its_requests_and_is_then_freed(server: Any, adapters: dict[str, Path]) -> None:
    url, service = server.url, server.service
    load = {"lora_name": "brief", "lora_path": str(adapters["one"])}
    assert post(f"{url}/v1/load_lora_adapter", json=load).status_code == 200
    slot, answers = service.adapters["brief"], []
    with gate(server) as opened:
        thread = threading.Thread(target=lambda: answers.append(chat(url, model="brief")))
        thread.start()
        wait_for(lambda: service.engine.running == 1)
        assert post(f"{url}/v1/unload_lora_adapter", json={"lora_name": "brief"}).status_code == 200
        assert chat(url, model="brief").status_code == 404
        assert slot.payload is not None and slot.references == 1
        opened.set()
        thread.join()
    assert answers[0].status_code == 200 and answers[0].json()["system_fingerprint"] == slot.sha256
    wait_for(lambda: slot.payload is None)


def test_models_name_the_bytes_that_are_served(server: Any, base: Path, adapters: dict[str, Path]) -> None:
    cards = {card["id"]: card["medloop"]["sha256"] for card in get(f"{server.url}/v1/models").json()["data"]}
    assert cards == {"base": fingerprint(base), **{name: fingerprint(folder) for name, folder in adapters.items()}}


@pytest.mark.parametrize("damage", ["nan", "shape", "extra", "pickle", "config", "dora", "truncated"])
def test_a_wrong_adapter_is_refused_and_the_server_goes_on(
    server: Any, adapters: dict[str, Path], tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "wrong"
    folder.mkdir()
    tensors = load_file(adapters["one"] / "adapter_model.safetensors")
    config = json.loads((adapters["one"] / "adapter_config.json").read_text())
    first = next(iter(tensors))
    if damage == "nan":
        tensors[first][0, 0] = float("nan")
    elif damage == "shape":
        tensors[first] = tensors[first][:, :-1].contiguous()
    elif damage == "extra":
        tensors["base_model.model.other.lora_A.weight"] = torch.zeros(1)
    elif damage == "config":
        config["r"] = 3
    elif damage == "dora":
        config["use_dora"] = True
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    if damage == "pickle":
        (folder / "adapter_model.bin").write_bytes(b"\x80\x04.")
    if damage == "truncated":
        data = (folder / "adapter_model.safetensors").read_bytes()
        (folder / "adapter_model.safetensors").write_bytes(data[:-7])
    response = post(f"{server.url}/v1/load_lora_adapter", json={"lora_name": "wrong", "lora_path": str(folder)})
    assert response.status_code == 400, response.text
    assert "wrong" not in server.service.adapters and chat(server.url).status_code == 200


def test_with_keys_only_the_health_doors_are_open(base: Path) -> None:
    key = "k" * 32
    with model_server(str(base), api_keys=[key]) as server:
        assert [get(server.url + path).status_code for path in ("/health", "/ready")] == [200, 200]
        assert [get(server.url + path).status_code for path in ("/v1/models", "/metrics", "/version")] == [401] * 3
        assert post(f"{server.url}/v1/load_lora_adapter", json={}).status_code == 401
        assert chat(server.url, headers={"Authorization": f"Bearer {key}x"}).status_code == 401
        assert chat(server.url, headers={"Authorization": f"Bearer {key}", "Host": "models.example"}).status_code == 200


def test_rollouts_come_from_it_as_from_vllm(server: Any, base: Path, adapters: dict[str, Path], tmp_path: Path) -> None:
    from peft import PeftModel

    model, tokenizer = AutoModelForCausalLM.from_pretrained(base), AutoTokenizer.from_pretrained(base)
    ends = stop_ids(model, tokenizer)
    policy = PeftModel.from_pretrained(model, adapters["one"])
    sampler = ServedSampler(server.url, policy, base=str(base), stop_ids=ends, folder=tmp_path)
    rollouts = sampler([[5, 6, 7], [8, 9]], ["a", "b"], max_new_tokens=6, temperature=1.0)
    sampler.close()
    for rollout in rollouts:
        ids = torch.tensor([[*rollout.prompt, *rollout.tokens]])
        with torch.no_grad():
            logprobs = policy(ids).logits[0].log_softmax(-1)
        wanted = [float(logprobs[len(rollout.prompt) - 1 + i, token]) for i, token in enumerate(rollout.tokens)]
        assert list(rollout.logprobs) == pytest.approx(wanted, abs=1e-4)


def test_another_architecture_is_served_by_the_library_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = GPT2Config(n_positions=128, n_embd=32, n_layer=2, n_head=2, initializer_range=0.3)
    base = tiny_model(tmp_path / "gpt2", config=config)
    folders = {name: random_adapter(tmp_path / name, base, seed) for seed, name in enumerate(("one", "two"))}
    with model_server(str(base), adapters=folders) as server:
        assert server.service.batch.backend == "library"
        assert sum("one request after another" in record.message for record in caplog.records) == 1
        answers = {}
        threads = [
            threading.Thread(
                target=lambda m=m: answers.update({m: chat(server.url, model=m, max_tokens=12, ignore_eos=True).json()})
            )
            for m in ("base", "one", "two")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        texts = {name: answer["choices"][0]["message"]["content"] for name, answer in answers.items()}
        assert texts == {name: library_text(base, folders.get(name)) for name in texts}
        assert len(set(texts.values())) == 3
        for name in folders:
            assert post(f"{server.url}/v1/unload_lora_adapter", json={"lora_name": name}).status_code == 200
        assert chat(server.url, max_tokens=12, ignore_eos=True).json()["choices"][0]["message"]["content"] == texts["base"]


def library_text(base: Path, adapter: Path | None) -> str:
    from peft import PeftModel

    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    prompt = tokenizer.apply_chat_template(CHAT["messages"], add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        ids = model.generate(**prompt, max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0, eos_token_id=None)[
            0
        ]
    return str(tokenizer.decode(ids[prompt["input_ids"].shape[1] :], skip_special_tokens=True))
