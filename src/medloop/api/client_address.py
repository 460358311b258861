"""Whom a request comes from: the other end of the connection, or what a trusted proxy says about it.

`X-Forwarded-For` can be sent by anybody, so it counts only from the proxies in the setting `api.trusted_proxies`. Each proxy
appends the address that it saw: read from the end, the first one that is not a proxy of ours is the client.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

UNKNOWN = ""  # many people may share it: the connection comes from this machine, where a proxy may be


class TrustedProxies:
    """`networks` are addresses or networks, such as 127.0.0.1 or 10.0.0.0/8; none: forwarded addresses are ignored."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks = [ip_network(network, strict=False) for network in networks]

    def client(self, peer: str, forwarded: Sequence[str]) -> str:
        """The client's address, an IPv6 address as its network of 64 bits; UNKNOWN where it cannot be told."""
        address = _parsed(peer)
        if self._networks and self._trusts(address):
            hops = (_parsed(_without_port(hop.strip())) for hop in reversed(",".join(forwarded).split(",")))
            address = next((hop for hop in hops if hop is None or not self._trusts(hop)), None)
        if address is None or address.is_loopback:
            return UNKNOWN
        return str(IPv6Network((address, 64), strict=False)) if isinstance(address, IPv6Address) else str(address)

    def _trusts(self, address: IPv4Address | IPv6Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    if len(text) > 64:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def _without_port(hop: str) -> str:
    """`10.0.0.1:4711` and `[2001:db8::1]:4711` as some proxies write them."""
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
