"""A real vLLM server for tests, in its own environment: VLLM_PYTHON names the interpreter (`make test-vllm` sets it).

with vllm_server(python, folder) as url:  # `folder` is served as "base", in float32, with runtime LoRA updating
    httpx.get(url + "/v1/models")
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

START_S = 300.0  # most of it imports
ENVIRONMENT = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "VLLM_HOST_IP": "127.0.0.1",
}  # fmt: skip


@contextmanager
def vllm_server(python: str, folder: Path) -> Iterator[str]:
    """Its address, once it is healthy; AssertionError when it ends before that or takes longer than START_S."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = (
        f"--model {folder} --served-model-name base --host 127.0.0.1 --port {port} --dtype float32 --max-model-len 512 "
        "--max-num-seqs 16 --enforce-eager --seed 0 --kv-cache-memory-bytes 134217728 --enable-lora --max-loras 4 "
        "--max-lora-rank 16 --max-cpu-loras 8"
    ).split()
    command = [python, "-m", "vllm.entrypoints.openai.api_server", *flags]
    child = subprocess.Popen(command, env={**os.environ, **ENVIRONMENT})
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_S
    try:
        while not _healthy(url):
            assert child.poll() is None and time.monotonic() < deadline, "vLLM did not start"
            time.sleep(0.5)
        yield url
    finally:
        child.terminate()
        child.wait(60)


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
