"""The server of `medloop api serve`: uvicorn, which ends within ten seconds whatever it is working on."""

import asyncio
import socket

import uvicorn
from fastapi import FastAPI

from medloop.api.slow_clients import SlowClientProtocol
from medloop.feedback.submit.phi_scan import PhiScan

SCAN_S = 3.0  # for the long texts that are being scanned when the server ends
REQUEST_S = 5  # for all requests; then they are cancelled, and nothing of them is stored that was not yet


class ApiServer(uvicorn.Server):
    """At the end, long texts that have not begun are refused at once (503), and those that are being scanned are held for review
    when they take too long; everything else has REQUEST_S to finish."""

    def __init__(self, app: FastAPI, connections: int) -> None:
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, proxy_headers=False,
            timeout_graceful_shutdown=REQUEST_S, timeout_keep_alive=5, limit_concurrency=connections, http=SlowClientProtocol,
        )  # fmt: skip
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.writer.refuse_long()  # type: ignore[union-attr]
        if PhiScan.workers is not None:
            asyncio.get_running_loop().call_later(SCAN_S, PhiScan.workers.stop)
        await super().shutdown(sockets)
