"""The server of `medloop api serve`, forked from a process that has its imports: for runs that kill it often."""

from __future__ import annotations

import multiprocessing
import socket
from pathlib import Path

import uvicorn

from medloop.api.limits import RequestLimits
from medloop.settings import Settings
from medloop.web.app import create_app


def serve(home: str, url: str, port: int, rate: float) -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    app = create_app(
        Settings(home=Path(home), database={"url": url}), supervise=False, limits=RequestLimits(rate), own_process=True
    )
    config = uvicorn.Config(app, log_level="warning", server_header=False, timeout_graceful_shutdown=5, limit_concurrency=2256)
    uvicorn.Server(config).run(sockets=[listener])


def forked(home: Path, url: str, port: int, rate: float) -> multiprocessing.process.BaseProcess:
    """The forkserver imports once; each server is a fork of it, a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["medloop.web.app", "uvicorn", "uvloop", "httptools"])
    process = context.Process(target=serve, args=(str(home), url, port, rate), daemon=True)
    process.start()
    return process
