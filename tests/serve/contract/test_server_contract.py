"""What a model server must do for medloop: the same tests for the embedded server and for real vLLM."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

QUESTIONS = ("What helps?", "My head hurts since Monday.", "头痛两天了，怎么办？", "I am 30 weeks pregnant and have a cough")
TOKENS = 24


def post(url: str, **more: Any) -> httpx.Response:
    return httpx.post(url, **{"timeout": 120, **more})


def get(url: str, **more: Any) -> httpx.Response:
    return httpx.get(url, **{"timeout": 120, **more})


def ask(url: str, model: str, question: str, **more: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": TOKENS, **more}
    return post(f"{url}/v1/chat/completions", json=body)


def text_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


@cache
def reference(base: Path, adapter: Path | None, question: str) -> str:
    """Greedy text by transformers and peft."""
    tokenizer, model = AutoTokenizer.from_pretrained(base), AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        ids = model.generate(**prompt, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)[0]
    return str(tokenizer.decode(ids[prompt["input_ids"].shape[1] :], skip_special_tokens=True))


@contextmanager
def loaded(url: str, folder: Path) -> Iterator[str]:
    """An adapter under a new name."""
    name = f"v-{uuid.uuid4().hex[:8]}"
    response = post(f"{url}/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(folder)})
    assert (response.status_code, response.text) == (200, f"Success: LoRA adapter '{name}' added successfully.")
    try:
        yield name
    finally:
        post(f"{url}/v1/unload_lora_adapter", json={"lora_name": name})


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error in OpenAI's shape."""
    error = response.json()["error"]
    assert set(error) >= {"message", "type", "code"} and error["code"] == response.status_code
    return dict(error)


def test_greedy_text_is_that_of_transformers_and_peft_mixed_in_one_batch(served: Any) -> None:
    with loaded(served.server_url, served.one) as one, loaded(served.server_url, served.two) as two:
        wanted = [(name, folder, q) for q in QUESTIONS for name, folder in (("base", None), (one, served.one), (two, served.two))]
        answers: dict[int, str] = {}
        threads = [
            threading.Thread(target=lambda i=i, m=m, q=q: answers.update({i: text_of(ask(served.server_url, m, q))}))
            for i, (m, _, q) in enumerate(wanted)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {i: reference(served.base, folder, q) for i, (_, folder, q) in enumerate(wanted)}
    assert len({answers[i] for i in range(3)}) == 3  # the adapters do change the answer


def test_models_list_names_root_and_parent(served: Any) -> None:
    with loaded(served.server_url, served.one) as name:
        cards = {card["id"]: card for card in get(f"{served.server_url}/v1/models").json()["data"]}
        assert cards[name]["root"] == str(served.one) and cards[name]["parent"] == "base"
        assert cards["base"]["parent"] is None and cards["base"]["max_model_len"] >= 64
    assert name not in {card["id"] for card in get(f"{served.server_url}/v1/models").json()["data"]}


def test_adapter_doors_say_what_vllm_says(served: Any, tmp_path: Path) -> None:
    url = served.server_url
    with loaded(url, served.one) as name:
        again = post(f"{url}/v1/load_lora_adapter", json={"lora_name": name, "lora_path": str(served.one)})
        assert again.status_code == 400 and error_of(again)["type"] == "InvalidUserInput"
        assert "has already been loaded" in error_of(again)["message"] and "load_inplace" in error_of(again)["message"]
        missing = post(f"{url}/v1/load_lora_adapter", json={"lora_name": "x", "lora_path": str(tmp_path / "no")})
        assert missing.status_code == 404 and error_of(missing)["type"] == "NotFoundError"
        before = text_of(ask(url, name, QUESTIONS[0]))
        inplace = {"lora_name": name, "lora_path": str(served.two), "load_inplace": True}
        assert post(f"{url}/v1/load_lora_adapter", json=inplace).status_code == 200
        assert text_of(ask(url, name, QUESTIONS[0])) == reference(served.base, served.two, QUESTIONS[0]) != before
        gone = post(f"{url}/v1/unload_lora_adapter", json={"lora_name": name})
        assert (gone.status_code, gone.text) == (200, f"Success: LoRA adapter '{name}' removed successfully.")
    unknown = post(f"{url}/v1/unload_lora_adapter", json={"lora_name": name})
    assert unknown.status_code == 404 and error_of(unknown)["type"] == "NotFoundError"
    asked = ask(url, name, QUESTIONS[0])
    assert asked.status_code == 404 and error_of(asked)["type"] == "NotFoundError"


def test_the_openai_client_works_unchanged(server_url: str) -> None:
    with openai.OpenAI(base_url=f"{server_url}/v1", api_key="none") as client:
        assert "base" in [model.id for model in client.models.list()]
        messages: Any = [{"role": "user", "content": QUESTIONS[1]}]
        whole = client.chat.completions.create(model="base", messages=messages, temperature=0, max_completion_tokens=TOKENS)
        assert whole.usage and whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
        chunks = list(
            client.chat.completions.create(
                model="base", messages=messages, temperature=0, max_tokens=TOKENS, stream=True,
                stream_options={"include_usage": True},
            )
        )  # fmt: skip
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
        assert chunks[-1].usage == whole.usage and not chunks[-1].choices
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
        text = client.completions.create(model="base", prompt="Hello", temperature=0, max_tokens=4)
        assert text.usage and text.usage.completion_tokens <= 4
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="nobody", messages=messages)
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="base", messages=messages, temperature=-1)


def test_the_async_openai_client_works_unchanged(server_url: str) -> None:
    async def stream(question: str) -> str:
        async with openai.AsyncOpenAI(base_url=f"{server_url}/v1", api_key="none") as client:
            chunks = await client.chat.completions.create(
                model="base", messages=[{"role": "user", "content": question}], temperature=0, max_tokens=TOKENS, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    async def both() -> list[str]:
        return await asyncio.gather(*(stream(question) for question in QUESTIONS[:2]))

    assert asyncio.run(both()) == [text_of(ask(server_url, "base", question)) for question in QUESTIONS[:2]]


def test_a_stop_string_ends_the_answer_before_it(server_url: str) -> None:
    whole = text_of(ask(server_url, "base", QUESTIONS[3]))
    stop = whole[len(whole) // 2 - 1 : len(whole) // 2 + 2]
    assert len(stop) == 3
    response = ask(server_url, "base", QUESTIONS[3], stop=[stop, "never there"])
    assert text_of(response) == whole[: whole.index(stop)]
    assert response.json()["choices"][0]["finish_reason"] == "stop"


def test_a_seed_reproduces_and_another_differs(server_url: str) -> None:
    def draw(seed: int) -> str:
        return text_of(ask(server_url, "base", QUESTIONS[0], temperature=1.0, seed=seed))

    assert draw(7) == draw(7)
    assert len({draw(seed) for seed in range(4)}) > 1


def test_logprobs_are_those_of_a_plain_forward_in_both_doors(served: Any) -> None:
    tokenizer, model = (
        AutoTokenizer.from_pretrained(served.base),
        AutoModelForCausalLM.from_pretrained(served.base, dtype=torch.float32),
    )
    prompt = tokenizer("Hello there")["input_ids"]
    body = {"model": "base", "prompt": prompt, "temperature": 0, "max_tokens": 6, "logprobs": 3, "return_token_ids": True}
    choice = post(f"{served.server_url}/v1/completions", json=body).json()["choices"][0]
    ids = [*prompt, *choice["token_ids"]]
    with torch.no_grad():
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    for step, value in enumerate(choice["logprobs"]["token_logprobs"]):
        row = logprobs[len(prompt) - 1 + step]
        assert value == pytest.approx(float(row[choice["token_ids"][step]]), abs=1e-4)
        top, best = choice["logprobs"]["top_logprobs"][step], row.topk(3).values
        assert all(float((best - value).abs().min()) < 1e-4 for value in top.values())  # two tokens may have one text
    chat = ask(served.server_url, "base", QUESTIONS[0], logprobs=True, top_logprobs=2, max_tokens=3).json()["choices"][0]
    for entry in chat["logprobs"]["content"]:
        assert len(entry["top_logprobs"]) == 2 and set(entry) >= {"token", "logprob", "bytes"}
        assert entry["logprob"] == pytest.approx(entry["top_logprobs"][0]["logprob"], abs=1e-6)


def test_health_and_version_answer(server_url: str) -> None:
    assert get(f"{server_url}/health").status_code == 200
    assert get(f"{server_url}/version").json()["version"]
    assert "# TYPE" in get(f"{server_url}/metrics").text


@pytest.mark.parametrize("swaps", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_swaps_under_load_drop_nothing_and_mix_nothing(served: Any, swaps: int) -> None:
    """New name per version, alias switched by the caller, old one unloaded after its last request."""
    url, versions = served.server_url, (served.one, served.two)
    alias, ended, wrong = {"name": "", "folder": Path()}, threading.Event(), []
    counts = [0] * 4
    in_flight: dict[str, int] = {}
    lock = threading.Lock()

    def client(number: int) -> None:
        while not ended.is_set():
            with lock:
                name, folder = str(alias["name"]), Path(alias["folder"])
                in_flight[name] = in_flight.get(name, 0) + 1
            question = QUESTIONS[counts[number] % len(QUESTIONS)]
            response = ask(url, name, question)
            with lock:
                in_flight[name] -= 1
            if response.status_code != 200 or text_of(response) != reference(served.base, folder, question):
                wrong.append((response.status_code, name))
            counts[number] += 1

    for folder in versions:
        for question in QUESTIONS:
            reference(served.base, folder, question)
    names = [f"swap-{uuid.uuid4().hex[:6]}-{number}" for number in range(swaps + 1)]
    threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for number, name in enumerate(names):
        folder = versions[number % 2]
        body = {"lora_name": name, "lora_path": str(folder)}
        assert post(f"{url}/v1/load_lora_adapter", json=body).status_code == 200
        with lock:
            old, alias["name"], alias["folder"] = str(alias["name"]), name, folder
        if number == 0:
            for thread in threads:
                thread.start()
            continue
        done = sum(counts)
        while in_flight.get(old) or sum(counts) < done + 2:
            assert not wrong and any(thread.is_alive() for thread in threads)
            time.sleep(0.002)
        assert post(f"{url}/v1/unload_lora_adapter", json={"lora_name": old}).status_code == 200
    ended.set()
    for thread in threads:
        thread.join()
    post(f"{url}/v1/unload_lora_adapter", json={"lora_name": names[-1]})
    assert not wrong and min(counts) > 0
