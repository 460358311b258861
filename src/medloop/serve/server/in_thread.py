"""The embedded server in a thread of this process, on a free port: for tests, notebooks and pages that bring their own model.

with server_in_thread(loaded, name="base", adapters={}) as server:
    httpx.get(server.url + "/v1/models")
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from medloop.models.load import Loaded
from medloop.serve.server.app import create_app
from medloop.serve.server.run_server import DrainingServer, listen
from medloop.serve.server.service import ModelService, ServeConfig

START_S = 120.0


@dataclass(frozen=True)
class ServerInThread:
    url: str
    service: ModelService


@contextmanager
def server_in_thread(
    loaded: Loaded,
    *,
    name: str,
    adapters: Mapping[str, Path] | None = None,
    config: ServeConfig | None = None,
    api_keys: Sequence[str] = (),
    library: bool = False,
) -> Iterator[ServerInThread]:
    """A server that is ready; the base model is called `name`. It ends with the block, and nothing of it stays."""
    service = ModelService(loaded, name=name, config=config, library=library)
    service.add_first_adapters(dict(adapters or {}))
    listener = listen("127.0.0.1", 0)
    server = DrainingServer(create_app(service, api_keys=api_keys), drain_s=5)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="model-server", daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + START_S
        while not service.ready:
            assert thread.is_alive() and time.monotonic() < deadline, "the model server did not start"
            time.sleep(0.005)
        yield ServerInThread(f"http://127.0.0.1:{listener.getsockname()[1]}", service)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
