"""Where model servers may stand: on this machine or in a private network, unless the settings allow another network.

A host name is resolved for every new connection, and the connection goes to the address that was checked: a name that points
elsewhere a moment later (DNS rebinding) is refused, too. Link-local addresses are not private: a cloud's metadata is there.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import urlsplit

import httpcore

from medloop.errors import ConfigError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
PRIVATE: tuple[Network, ...] = tuple(
    ip_network(text) for text in ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7")
)
ALLOW = "Use a private address, or add its network to gateway.allowed_networks"


def parse_networks(text: str) -> tuple[Network, ...]:
    return tuple(ip_network(part, strict=False) for part in text.replace(",", " ").split())


def is_allowed(address: Address, networks: Iterable[Network]) -> bool:
    address = address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
    return any(address in network for network in (*PRIVATE, *networks) if network.version == address.version)


def check_url(url: str, networks: Iterable[Network]) -> str:
    """The URL without `/v1` at its end; ConfigError if it is not one, has a password, or names a forbidden address."""
    try:
        parts = urlsplit(url)
        host, has_password = parts.hostname, parts.username is not None
        _ = parts.port
    except ValueError:
        host, has_password = None, False
    if has_password:
        raise ConfigError("gateway.backends: a URL contains a user name or password", "Set gateway.key instead")
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        plain = re.split("[?#]", url)[0][:100]  # what follows may be a key
        shown = f"'{plain}' is " if "@" not in url else ""  # it may have a password before the @
        raise ConfigError(f"gateway.backends: {shown}not a URL of a model server", "Example: http://127.0.0.1:8001#med-assistant")
    try:
        address = ip_address(host)
    except ValueError:
        pass  # a name is checked when it is resolved
    else:
        if not is_allowed(address, networks):
            raise ConfigError(f"gateway.backends: {host} is not in a private network", ALLOW)
    return re.sub(r"/v1/?$", "", url.rstrip("/"))


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects only to allowed addresses."""

    def __init__(self, networks: Iterable[Network]) -> None:
        self._networks, self._inner = tuple(networks), httpcore.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Any = None
    ) -> httpcore.AsyncNetworkStream:
        for address in await self._allowed(host, port, timeout):
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except httpcore.ConnectError as error:
                refused = error
        raise refused

    async def _allowed(self, host: str, port: int, timeout: float | None) -> list[str]:
        try:
            return [str(self._checked(ip_address(host)))]
        except ValueError:
            pass
        try:
            async with asyncio.timeout(timeout):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError):
            raise httpcore.ConnectError("the host name cannot be resolved") from None
        return [str(self._checked(ip_address(text))) for text in dict.fromkeys(str(info[4][0]).split("%")[0] for info in found)]

    def _checked(self, address: Address) -> Address:
        if not is_allowed(address, self._networks):
            raise httpcore.ConnectError("the address is not in a private network")
        return address

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Any = None
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.ConnectError("not a network address")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
