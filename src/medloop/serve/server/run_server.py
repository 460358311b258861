"""Runs the app: at the end no new request is taken, and those that run or wait are answered first."""

from __future__ import annotations

import socket
import sys

import uvicorn
from starlette.applications import Starlette

SWITCH_S = 0.0005  # the engine and the event loop share Python: the engine gets its turn after half a millisecond, not after five


class DrainingServer(uvicorn.Server):
    """uvicorn, which says that it is not ready as soon as it is told to end."""

    def __init__(self, app: Starlette, *, drain_s: int) -> None:
        sys.setswitchinterval(SWITCH_S)
        config = uvicorn.Config(
            app, log_level="warning", server_header=False, proxy_headers=False, timeout_graceful_shutdown=drain_s,
            timeout_keep_alive=30, lifespan="on",
        )  # fmt: skip
        super().__init__(config)
        self.service = app.state.service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.draining = True
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections already, so that nobody is refused while the model loads; OSError when it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    return listener
