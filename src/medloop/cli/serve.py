"""`medloop serve`: serve a model and its adapters over HTTP."""

import logging
import re
import signal
import socket
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import typer

from medloop.cli import ui
from medloop.contracts import ModelRef
from medloop.errors import ConfigError, MissingExtraError, explain_os_errors
from medloop.models import leave_out_bitsandbytes, quick_imports, require_packages
from medloop.models.find import adapter_folder, resolve_chat_model
from medloop.settings import Settings

ADAPTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
SHORTEST_KEY = 16  # characters


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)


def serve(
    model: Annotated[
        str | None,
        typer.Option(help="Base model: embedded:NAME, a folder, a GGUF file, or a hub id (default: the setting 'model')."),
    ] = None,
    adapter: Annotated[
        list[str] | None, typer.Option(help="NAME=FOLDER of a LoRA adapter, or its name in the workspace; may be repeated.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the base model for callers (default: as --model).")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8100,
    host: Annotated[str, typer.Option(help="Address; any but this machine's own needs --api-key-file.")] = "127.0.0.1",
    api_key_file: Annotated[Path | None, typer.Option(help="File with the API keys that callers need, one per line.")] = None,
    max_rows: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Requests computed at once (default: 16; GPU: 64).")
    ] = None,
    queue: Annotated[int, typer.Option(min=1, max=100_000, help="Requests that may wait; what is above gets 429.")] = 128,
    max_length: Annotated[int | None, typer.Option(min=16, help="Tokens of prompt and answer (default: the model's).")] = None,
    prefix_mb: Annotated[int, typer.Option(min=0, help="Megabytes kept of prompts with a common beginning; 0: none.")] = 256,
    drain: Annotated[int, typer.Option(min=0, max=3600, help="Seconds that running requests get when the server ends.")] = 30,
) -> None:
    """Serve a model and its adapters over HTTP: OpenAI's chat and completions, vLLM's adapter endpoints.

    Example:  medloop serve --model embedded:tiny --port 8100

    Example:  medloop serve --model embedded:tiny --adapter champion-v1=models/lora/sft

    Example:  medloop serve --host 10.0.0.5 --api-key-file keys.txt
    """
    require_packages()
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        raise MissingExtraError.of("Serving a model", "api")
    settings = ui.resolved(must_exist=False).settings
    ref = ModelRef(base=model or settings.model)
    keys = _keys(host, api_key_file)
    folders = _adapters(adapter or [], settings)
    base_name = name or ref.base
    if base_name in folders:
        raise ConfigError(f"--adapter: '{base_name}' is the name of the base model", "Give the adapter another name")
    resolve_chat_model(ref, settings)
    listener = _listen(host, port)
    try:
        ui.say(f"Loading {ref.base} ...")
        _serve(settings, ref, listener, base_name, folders, keys, drain, {
            "max_rows": max_rows, "queue_places": queue, "max_length": max_length, "prefix_mb": prefix_mb,
        })  # fmt: skip
    finally:
        listener.close()


def _serve(
    settings: Settings, ref: ModelRef, listener: socket.socket, name: str, folders: dict[str, Path], keys: list[str], drain: int,
    options: dict[str, Any],
) -> None:  # fmt: skip
    """Until a signal ends it."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    leave_out_bitsandbytes()
    with quick_imports():
        from medloop.models.load import load  # torch
        from medloop.serve.server.app import create_app
        from medloop.serve.server.run_server import DrainingServer
        from medloop.serve.server.service import ModelService, ServeConfig

    loaded = load(ref, settings)
    options["max_rows"] = options["max_rows"] or (64 if loaded.device.type == "cuda" else 16)
    service = ModelService(loaded, name=name, config=ServeConfig(**options))
    service.add_first_adapters(folders)
    app = create_app(service, api_keys=keys)
    server = DrainingServer(app, drain_s=drain)
    for number in (signal.SIGTERM, signal.SIGINT):  # for signals that come before uvicorn's handlers, and that it raises again
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    host, port = listener.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    models = ", ".join([name, *folders])
    ui.say(f"Serving {models} at {address} ({service.batch.backend} forward on {loaded.device.type}); Ctrl-C stops the server.")
    server.run(sockets=[listener])


def _keys(host: str, file: Path | None) -> list[str]:
    """The API keys; an address that others can reach needs some."""
    if file is None:
        if not _loopback(host):
            raise ConfigError(
                f"--host {host} can be reached by other machines, so callers need an API key",
                "Put keys into a file, one per line, and name it with --api-key-file",
            )
        return []
    with explain_os_errors(file):
        lines = file.read_text(encoding="utf-8").splitlines()
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys or any(len(key) < SHORTEST_KEY or not key.isascii() or " " in key for key in keys):
        raise ConfigError(
            f"--api-key-file: {ui.shown(file)} needs at least one key, each of {SHORTEST_KEY} or more ASCII characters",
            "Make one with: openssl rand -hex 32",
        )
    return keys


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        raise ConfigError(f"--host: '{host[:64]}' is not an IP address", "Example: --host 127.0.0.1") from None


def _adapters(given: list[str], settings: Settings) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not equals:
            name, folder = Path(text).name, text
        if not ADAPTER_NAME.fullmatch(name):
            raise ConfigError(f"--adapter: '{text[:100]}' is not NAME=FOLDER", "Example: --adapter champion-v1=models/lora/sft")
        if name in folders:
            raise ConfigError(f"--adapter: the name '{name}' is given twice", "Give each adapter a name of its own")
        folders[name] = adapter_folder(folder, settings).absolute()
    return folders


def _listen(host: str, port: int) -> socket.socket:
    from medloop.serve.server.run_server import listen  # uvicorn

    try:
        return listen(host, port)
    except OSError as error:
        raise ConfigError(f"Port {port} of {host} cannot be used ({error.strerror})", "Choose another one with --port") from None
