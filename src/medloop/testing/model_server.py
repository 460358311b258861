"""The embedded model server inside a test: on a free port, in a thread of this process.

    with model_server() as server:                                              # embedded:tiny, called "base"
        httpx.get(server.url + "/v1/models")
    with model_server(str(folder), adapters={"champion-v1": adapter}, max_rows=4) as server: ...

`server.service` is what it serves, for tests that look inside. Settings of `ServeConfig` are given by their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any

from medloop.contracts import ModelRef
from medloop.models.load import load
from medloop.settings import Settings


def model_server(
    model: str = "embedded:tiny",
    *,
    adapters: Mapping[str, Path] | None = None,
    name: str = "base",
    api_keys: Sequence[str] = (),
    library: bool = False,
    **config: Any,
) -> AbstractContextManager[Any]:
    """A `ServerInThread` that is ready (`url`, `service`); it ends with the block. `library` does without the fast decoder."""
    in_thread, service = (import_module(f"medloop.serve.server.{name}") for name in ("in_thread", "service"))
    loaded = load(ModelRef(base=model), Settings(home=Path.cwd(), device="cpu", threads=1, offline=True))
    server: AbstractContextManager[Any] = in_thread.server_in_thread(
        loaded, name=name, adapters=adapters, config=service.ServeConfig(**config), api_keys=api_keys, library=library
    )
    return server
