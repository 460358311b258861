"""A model server, as a deployment needs it: load, unload, list, generate, health. vLLM and the embedded server speak the same.

    server = HttpServer("http://127.0.0.1:8000", key="")
    server.load("med-assistant-v3-1f2e3d4c", Path("/srv/serving/med-assistant-v3-1f2e3d4c"))
    server.generate("med-assistant-v3-1f2e3d4c", [Message(role="user", content="…")], max_tokens=256)

An adapter is loaded under a name of its own and never in place: vLLM would mix the weights of running answers. With runtime
loading on, vLLM answers some paths without its key, so only addresses of private networks are used, and redirects are not
followed. A call has one deadline for everything, so a server that sends a byte a second does not hold a deployment up.
"""

import ipaddress
import json
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

from medloop.contracts import Message
from medloop.contracts.deploy import ReplicaState, ServedModel
from medloop.errors import ConfigError, MedloopError

CONNECT_S = 3.0
LIST_S = 10.0
LOAD_S = 300.0  # a big adapter from a slow disk
MAX_BYTES = 4_000_000  # of a reply
METRICS = ("vllm:num_requests_running", "vllm:num_requests_waiting")


class ServerDownError(MedloopError):
    """The model server cannot be reached, or does not answer in time."""


class ServerRefusedError(MedloopError):
    """The model server answered, but not with what was asked for."""


@dataclass(frozen=True)
class ServedAnswer:
    text: str
    finish_reason: str
    seconds: float


class Server(Protocol):
    url: str

    def health(self) -> bool: ...

    def list(self) -> tuple[ServedModel, ...]: ...

    def load(self, name: str, folder: Path) -> None: ...

    def unload(self, name: str) -> None: ...

    def generate(
        self, name: str, messages: Sequence[Message], *, max_tokens: int = 256, seconds: float = 60.0
    ) -> ServedAnswer: ...  # fmt: skip

    def running(self) -> int | None: ...


class HttpServer:
    """One model server by its URL. Close it at the end."""

    def __init__(self, url: str, *, key: str = "") -> None:
        check_address(url)
        self.url = url
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Reading the certificates of the system takes longer than everything else here; plain HTTP needs none of them.
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http://") else True
        self._client = httpx.Client(base_url=url, headers=headers, trust_env=False, follow_redirects=False, verify=verify)

    def close(self) -> None:
        self._client.close()

    def health(self) -> bool:
        try:
            return self._call("GET", "/health", seconds=LIST_S)[0] == 200
        except ServerDownError:
            return False

    def list(self) -> tuple[ServedModel, ...]:
        status, body = self._call("GET", "/v1/models", seconds=LIST_S)
        try:
            rows = json.loads(body)["data"] if status == 200 else None
            if rows is not None:
                return tuple(_served(row) for row in rows)
        except (ValueError, TypeError, KeyError, AttributeError):  # a ValidationError is a ValueError
            pass
        raise ServerRefusedError(f"{self.url} does not list its models (status {status})", "Is it a model server?")

    def load(self, name: str, folder: Path) -> None:
        """Nothing is loaded twice: the same name from the same folder is there already, from another folder it is an error."""
        content = {"lora_name": name, "lora_path": str(folder)}
        status, body = self._call("POST", "/v1/load_lora_adapter", content, seconds=LOAD_S)
        if status == 200:
            return
        loaded = next((model for model in self.list() if model.name == name), None)
        if loaded is None:
            raise ServerRefusedError(f"{self.url} did not load {name} (status {status}{_kind(body)})", _load_hint(status))
        if Path(loaded.root) != folder:
            raise ServerRefusedError(f"{self.url} has {name} from another folder", "Restart that server")

    def unload(self, name: str) -> None:
        status, body = self._call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, seconds=LOAD_S)
        if status not in (200, 404):
            raise ServerRefusedError(f"{self.url} did not unload {name} (status {status}{_kind(body)})", "Look at its log")

    def generate(
        self, name: str, messages: Sequence[Message], *, max_tokens: int = 256, seconds: float = 60.0
    ) -> ServedAnswer:  # fmt: skip
        """The greedy answer of one version."""
        content = {
            "model": name, "messages": [message.model_dump() for message in messages], "max_tokens": max_tokens,
            "temperature": 0.0, "stream": False,
        }  # fmt: skip
        start = time.monotonic()
        status, body = self._call("POST", "/v1/chat/completions", content, seconds=seconds)
        try:
            reply = json.loads(body) if status == 200 else {}
            choice = reply["choices"][0]
            text = choice["message"]["content"] or ""
            by, reason = str(reply.get("model", name)), str(choice.get("finish_reason") or "")
        except (ValueError, KeyError, TypeError, IndexError):
            raise ServerRefusedError(f"{self.url} gave no answer as {name} (status {status}{_kind(body)})") from None
        if by != name:
            raise ServerRefusedError(f"{self.url} was asked for {name}, but another version answered")
        return ServedAnswer(str(text), reason, time.monotonic() - start)

    def running(self) -> int | None:
        """Answers that the server works on or that wait there; None where it does not say."""
        try:
            status, body = self._call("GET", "/metrics", seconds=LIST_S)
            lines = [line.split() for line in body.decode("utf-8", "replace").splitlines() if line.startswith(METRICS)]
            return int(sum(float(words[-1]) for words in lines)) if status == 200 and lines else None
        except (ServerDownError, ValueError, IndexError):
            return None

    def _call(self, method: str, path: str, content: dict[str, Any] | None = None, *, seconds: float) -> tuple[int, bytes]:
        """Status and body within `seconds`, or ServerDownError."""
        deadline, body = time.monotonic() + seconds, bytearray()
        timeout = httpx.Timeout(seconds, connect=min(CONNECT_S, seconds))
        try:
            with self._client.stream(method, path, json=content, timeout=timeout) as answer:
                for chunk in answer.iter_bytes():
                    body += chunk
                    if time.monotonic() > deadline or len(body) > MAX_BYTES:
                        raise ServerDownError(f"{self.url} did not answer within {seconds:g} s", "Look at its log")
                return answer.status_code, bytes(body)
        except httpx.TimeoutException:
            raise ServerDownError(f"{self.url} did not answer within {seconds:g} s", "Look at its log") from None
        except httpx.HTTPError as error:
            raise ServerDownError(
                f"{self.url} cannot be reached ({type(error).__name__})", "Start it, or check the URL"
            ) from None


def observe(server: Server) -> ReplicaState:
    """What a server has now; never raises because of the server."""
    try:
        models = server.list()
        if not server.health():
            return ReplicaState(url=server.url, is_up=False, problem=f"{server.url} is not healthy.")
        return ReplicaState(url=server.url, is_up=True, models=models)
    except (ServerDownError, ServerRefusedError) as error:
        return ReplicaState(url=server.url, is_up=False, problem=str(error))


def check_address(url: str) -> None:
    """ConfigError unless every address of the host belongs to this machine or a private network."""
    parts = urlsplit(url)
    if parts.username is not None or not parts.hostname:
        raise ConfigError("deploy.replicas: not a URL of a model server", "Example: http://127.0.0.1:8000; the key is deploy.key")
    try:
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    except OSError:
        return  # a name that nobody knows today cannot be reached either
    for address in {str(entry[4][0]).partition("%")[0] for entry in found}:
        ip = ipaddress.ip_address(address)
        if not (ip.is_private or ip.is_loopback) or ip.is_link_local or ip.is_unspecified:  # a metadata service is link-local
            raise ConfigError(
                f"deploy.replicas: {parts.hostname} is not in a private network",
                "A model server loads adapters for anybody who can reach it: put it behind the gateway",
            )


def _served(row: dict[str, Any]) -> ServedModel:
    ours = row.get("medloop") or {}
    return ServedModel(
        name=str(row["id"]), root=str(row.get("root") or ""), parent=row.get("parent"), sha256=ours.get("sha256"),
        requests=ours.get("requests"),
    )  # fmt: skip


def _kind(body: bytes) -> str:
    """The type that the server gives its error; its sentence is not repeated, because it may quote a text."""
    try:
        return f", {json.loads(body)['error']['type']}"[:60]
    except (ValueError, KeyError, TypeError):
        return ""


def _load_hint(status: int) -> str:
    if status == 404:
        return "Start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, on a disk that has the adapter's folder"
    return "Look at its log"
