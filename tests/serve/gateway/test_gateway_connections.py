"""Connections to model servers: kept when a body was read to its end, and closed when a reader leaves in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import anyio
import httpcore
import pytest

from medloop.serve.gateway.connections import ConnectionStack

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
REQUEST = httpcore.Request("GET", "http://model.test/v1/models", headers=[("Host", "model.test")])


class Socket(httpcore.AsyncNetworkStream):
    """Says its parts, then nothing more. Closing takes a turn of the event loop, as that of a real one does."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self.parts, self.is_open = list(parts), True

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if not self.parts:
            await anyio.sleep_forever()
        return self.parts.pop(0)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.is_open = False

    def get_extra_info(self, info: str) -> object:
        return False if info == "is_readable" else None


class Network(httpcore.AsyncNetworkBackend):
    def __init__(self, *parts: bytes) -> None:
        self.parts, self.sockets = parts, list[Socket]()

    async def connect_tcp(self, *_: object, **__: object) -> Socket:
        self.sockets.append(Socket(self.parts))
        return self.sockets[-1]


async def read_and_leave(stack: ConnectionStack, where: str) -> None:
    """A reader who is cancelled while the rest of the body is awaited, or while a part of it is passed on."""
    with anyio.CancelScope() as scope:
        async with stack.stream(REQUEST) as response:
            async for _ in response.aiter_stream():
                scope.cancel()
                if where == "passing on":
                    await anyio.sleep_forever()


@pytest.mark.parametrize("where", ["reading", "passing on"])
def test_readers_who_leave_leave_no_socket_open(where: str) -> None:
    async def run() -> Network:
        network = Network(HEAD, b"half")
        stack = ConnectionStack(network)
        for _ in range(3):
            await read_and_leave(stack, where)
        assert [socket.is_open for socket in network.sockets] == [False] * 3, "before the stack is closed"
        await stack.aclose()
        return network

    assert len(asyncio.run(run()).sockets) == 3


@pytest.mark.parametrize("leaves", [False, True])
def test_a_connection_that_outlives_its_stack_is_closed_with_its_response(leaves: bool) -> None:
    async def run() -> None:
        network = Network(HEAD, b"0123456789")
        stack = ConnectionStack(network)
        with anyio.CancelScope() as scope:
            async with stack.stream(REQUEST) as response:
                assert await response.aread() == b"0123456789"
                await stack.aclose()
                if leaves:
                    scope.cancel()
        assert not network.sockets[0].is_open

    asyncio.run(run())


def test_a_connection_whose_body_was_read_is_used_again_and_closed_with_the_stack() -> None:
    async def run() -> None:
        network = Network(HEAD, b"0123456789", HEAD, b"0123456789")
        stack = ConnectionStack(network)
        for _ in range(2):
            assert (await stack.request(REQUEST)).content == b"0123456789"
        (socket,) = network.sockets
        assert socket.is_open
        await stack.aclose()
        assert not socket.is_open

    asyncio.run(run())


def test_a_connection_is_used_again_although_its_reader_left_after_the_last_byte() -> None:
    async def run() -> None:
        network = Network(HEAD, b"0123456789", HEAD, b"0123456789")
        stack = ConnectionStack(network)
        with anyio.CancelScope() as scope:
            async with stack.stream(REQUEST) as response:
                await response.aread()
                scope.cancel()
        await stack.request(REQUEST)
        assert len(network.sockets) == 1
        await stack.aclose()

    asyncio.run(run())
