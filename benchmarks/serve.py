"""How fast the embedded server answers, against a static batch on our own sampler and `generate` one by one, in the same run.

    python benchmarks/serve.py --out serve.json                             # embedded:tiny on a CPU, 8 clients
    python benchmarks/serve.py --vllm .venv-vllm/bin/python       # beside it the CPU build of vLLM (make vllm-env), same clients
    python benchmarks/serve.py --arch qwen2.5-1.5b --clients 64 --out serve.json   # that shape with random weights, on a GPU

The server is a process of its own (`medloop serve`); its clients are threads of this one. Nothing ends early: every answer has
the same number of tokens. Then a late client asks while the others are answered; its time to the first token is compared with the
time between two tokens of the others and with the time to the first token on an idle server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

from medloop.models.rollout.sampler import Sampler
from medloop.testing.models import random_adapter, tiny_tokenizer
from medloop.testing.vllm_server import vllm_server

TINY = Path(__file__).parent.parent / "src/medloop/assets/tiny"


def model_folder(arch: str, folder: Path) -> Path:
    if arch == "tiny":
        return TINY
    config = Qwen2Config(
        vocab_size=151936, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
        num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def prompts(tokenizer: Any, count: int, length: int) -> list[list[int]]:
    """Different prompts without a common beginning."""
    size = len(tokenizer)
    return [[3 + (row * 7919 + place * 104729) % (size - 3) for place in range(length)] for row in range(count)]


@contextmanager
def serving(folder: Path, *more: str) -> Iterator[tuple[str, int]]:
    """Address and process id."""
    command = [sys.executable, "-m", "medloop", "serve", "--model", str(folder), "--name", "base", "--port", "0", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            print(line.rstrip(), flush=True)
            if match := re.search(r"at (http://\S+)", line):
                break
        else:
            raise SystemExit("the server did not start")
        yield match[1], process.pid
    finally:
        process.terminate()
        process.wait()


def complete(client: http.client.HTTPConnection, body: bytes, tokens: int) -> None:
    client.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    response = client.getresponse()
    answer = json.loads(response.read())
    assert response.status == 200 and answer["usage"]["completion_tokens"] == tokens, answer


def times(url: str, prompt: list[int], tokens: int) -> list[float]:
    """Seconds after the request at which each piece of a stream came."""
    body = {
        "model": "base", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
        "logprobs": 0,
    }  # fmt: skip
    began, arrived = time.perf_counter(), []
    with httpx.Client(timeout=600) as client, client.stream("POST", f"{url}/v1/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                arrived.append(time.perf_counter() - began)
    return arrived


def at_once(work: list[Callable[[], None]]) -> float:
    threads = [threading.Thread(target=item) for item in work]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def served(url: str, rows: list[list[int]], tokens: int, models: list[str], rounds: int) -> float:
    """Tokens per second of clients that each ask `rounds` times. They are connected before, and light: 64 clients of a heavier
    library in one process would measure themselves."""

    def client(connection: http.client.HTTPConnection, index: int) -> Callable[[], None]:
        body = {"model": models[index % len(models)], "prompt": rows[index], "max_tokens": tokens, "temperature": 0}
        content = json.dumps(body | {"ignore_eos": True}).encode()

        def work() -> None:
            for _ in range(rounds):
                complete(connection, content, tokens)

        return work

    with ExitStack() as stack:
        clients = [stack.enter_context(closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=600))) for _ in rows]
        for connection in clients:
            connection.connect()
        return len(rows) * tokens * rounds / at_once([client(connection, index) for index, connection in enumerate(clients)])


def steps_of(url: str) -> tuple[float, int]:
    """Seconds in steps of the engine, and how many."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    values = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}
    return values["medloop_serve_step_seconds_sum"], int(values["medloop_serve_step_seconds_count"])


def late_client(url: str, rows: list[list[int]], tokens: int, trials: int) -> dict[str, float]:
    """The time to the first token of one more client while the others run, beside what it is made of.

    The late client has its connection already, as a gateway has.
    """
    body = {"model": "base", "prompt": rows[-1], "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    first, alone, steps = [], [], []

    def ask(client: httpx.Client) -> float:
        began = time.perf_counter()
        assert client.post(f"{url}/v1/completions", json=body).status_code == 200
        return time.perf_counter() - began

    def other(row: list[int], into: list[list[float]]) -> None:
        into.append(times(url, row, 2 * tokens))

    with httpx.Client(timeout=600) as client:
        ask(client)
        for _ in range(trials):
            alone.append(ask(client))
            arrived: list[list[float]] = []
            others = [threading.Thread(target=other, args=(row, arrived)) for row in rows[:-1]]
            for thread in others:
                thread.start()
            running = f"medloop_serve_running {len(others)}"
            while any(thread.is_alive() for thread in others) and running not in client.get(f"{url}/metrics").text:
                time.sleep(0.01)
            first += [ask(client) for _ in range(3)]
            for thread in others:
                thread.join()
            steps += [b - a for row in arrived for a, b in pairwise(row[1:])]
    step, reading, late = statistics.median(steps), statistics.median(alone), statistics.median(first)
    return {
        "step_ms": round(1e3 * step, 2), "first_token_alone_ms": round(1e3 * reading, 2),
        "first_token_late_ms": round(1e3 * late, 2), "allowed_ms": round(1e3 * (2 * step + reading), 2),
    }  # fmt: skip


def tokens_per_s(work: Callable[[], None], tokens: int, repeats: int) -> tuple[int, int]:
    """By the wall, and by processor time, which a busy machine disturbs less; the best of each."""
    work()
    wall, cpu = 0.0, 0.0
    for _ in range(repeats):
        began, used = time.perf_counter(), time.process_time()
        work()
        wall, cpu = max(wall, tokens / (time.perf_counter() - began)), max(cpu, tokens / (time.process_time() - used))
    return round(wall), round(cpu)


def cpu_seconds(pid: int) -> float:
    """That a process has used (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_process(
    folder: Path, tokenizer: Any, rows: list[list[int]], new: int, repeats: int, device: torch.device
) -> dict[str, int]:
    """Tokens per second of a static batch on the sampler, and of `generate` for one prompt after another."""
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
    sampler = Sampler(model, stop_ids=[-1], pad_id=0, vocabulary=len(tokenizer))
    streams, few = [str(row) for row in range(len(rows))], rows[:8]

    def static() -> None:
        sampler(rows, streams, max_new_tokens=new, temperature=0.0, batch_size=len(rows))

    def one_by_one() -> None:
        for row in few:
            model.generate(
                torch.tensor([row], device=device), max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0,
                attention_mask=torch.ones(1, len(row), dtype=torch.long, device=device),
            )  # fmt: skip

    batch, single = tokens_per_s(static, len(rows) * new, repeats), tokens_per_s(one_by_one, len(few) * new, 1)
    return {
        "static_batch": batch[0], "static_batch_by_cpu": batch[1],
        "generate_one_by_one": single[0], "generate_one_by_one_by_cpu": single[1],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", choices=["tiny", "qwen2.5-1.5b"], default="tiny")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=64, help="Tokens of a prompt.")
    parser.add_argument("--new", type=int, default=128, help="Tokens of an answer.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only-served", action="store_true", help="Without the static batch and `generate`.")
    parser.add_argument("--vllm", type=Path, help="Python of an environment with vLLM, to measure it as well.")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers.")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    report: dict[str, Any] = {"arch": args.arch, "device": device.type, "clients": args.clients, "new": args.new}
    report |= {"threads": torch.get_num_threads(), "load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as temp:
        folder = model_folder(args.arch, Path(temp) / "model")
        tokenizer = AutoTokenizer.from_pretrained(folder)
        rows = prompts(tokenizer, args.clients, args.prompt)
        if not args.only_served:
            report |= in_process(folder, tokenizer, rows, args.new, args.repeats, device)
        adapters = {name: random_adapter(Path(temp) / name, folder, seed, r=8) for seed, name in enumerate(("one", "two"))}
        flags = [word for name, path in adapters.items() for word in ("--adapter", f"{name}={path}")]
        with serving(folder, "--prefix-mb", "0", "--max-rows", str(max(args.clients, 16)), *flags) as (url, pid):
            for name, models in (("base", ["base"]), ("one_adapter", ["one"]), ("mixed", ["base", "one", "two"])):
                served(url, rows, args.new, models, 1)
                speeds, by_cpu = [], []
                for _ in range(args.repeats):
                    used, (seconds, steps) = cpu_seconds(pid), steps_of(url)
                    speeds.append(served(url, rows, args.new, models, 2))
                    by_cpu.append(2 * len(rows) * args.new / (cpu_seconds(pid) - used))
                    after = steps_of(url)
                    report[f"step_ms_{name}"] = round(1e3 * (after[0] - seconds) / (after[1] - steps), 2)
                    report[f"steps_{name}"] = after[1] - steps
                report[f"served_{name}"], report[f"served_{name}_by_cpu"] = round(max(speeds)), round(max(by_cpu))
            report["late_client"] = late_client(url, rows, args.new, 5)
        if args.vllm is not None:
            report |= beside_vllm(args.vllm, folder, rows, args.new, args.repeats)
    if not args.only_served:
        compare(report)
    report["load_after"] = os.getloadavg()[0]
    print(json.dumps(report, indent=2))
    if args.out:
        args.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def beside_vllm(python: Path, folder: Path, rows: list[list[int]], new: int, repeats: int) -> dict[str, int]:
    """Tokens per second of real vLLM (CPU build, float32) for the same clients, prompts and lengths."""
    with vllm_server(str(python), folder) as url:
        served(url, rows, new, ["base"], 1)
        return {"vllm_base": round(max(served(url, rows, new, ["base"], 2) for _ in range(repeats)))}


def compare(report: dict[str, Any]) -> None:
    report["served_by_static"] = round(report["served_base"] / report["static_batch"], 3)
    report["served_by_generate"] = round(report["served_base"] / report["generate_one_by_one"], 2)
    report["served_by_static_by_cpu"] = round(report["served_base_by_cpu"] / report["static_batch_by_cpu"], 3)


if __name__ == "__main__":
    main()
