"""Which model servers there are: `deploy.replicas` get the versions, `gateway.backends` answer, and both must be the same.

backend_pool(settings, own)       # those that answer; without gateway.backends they are those of deploy.replicas
check_servers(settings)           # ConfigError where a server would answer that no deployment reaches, or the other way round
"""

from collections.abc import Sequence

from medloop.errors import ConfigError
from medloop.serve.gateway.addresses import parse_networks
from medloop.serve.gateway.backends import BackendAddress, BackendPool, parse_backends
from medloop.serve.gateway.wire import WireTimeouts
from medloop.settings import Settings

FOLLOW = "Leave gateway.backends empty: then the servers of deploy.replicas answer"


def check_servers(settings: Settings, own: Sequence[BackendAddress] | None = None) -> None:
    """`own`: servers that this process started itself; None where that is not known."""
    networks = parse_networks(settings.gateway.allowed_networks)
    answering = {address.url for address in parse_backends(settings.gateway.backends, networks)}
    deployed = set(settings.deploy.urls)
    if not answering or not deployed:
        return
    if extra := sorted(answering - deployed):
        raise ConfigError(
            f"gateway.backends names {extra[0]}, but deploy.replicas does not: it would never get a version", FOLLOW
        )
    if own is not None and (unused := sorted(deployed - answering - {address.url for address in own})):
        raise ConfigError(
            f"deploy.replicas names {unused[0]}, but gateway.backends does not: it would never be asked", FOLLOW
        )  # fmt: skip


def backend_pool(settings: Settings, own: Sequence[BackendAddress] = ()) -> BackendPool:
    """The model servers of the settings, after those that this process started itself; each once."""
    check_servers(settings, own)
    section = settings.gateway
    networks = parse_networks(section.allowed_networks)
    named = parse_backends(section.backends or settings.deploy.replicas, networks)
    known = {address.url for address in own}
    replicas = (*own, *(address for address in named if address.url not in known))
    fallbacks = parse_backends(section.fallback, networks)
    key = section.key.get_secret_value() or ("" if section.backends else settings.deploy.key.get_secret_value())
    timeouts = WireTimeouts(read_s=section.timeout_s)
    return BackendPool(
        replicas, fallbacks, key=key, networks=networks, timeouts=timeouts, answer_tokens=section.answer_tokens
    )  # fmt: skip


def with_own(settings: Settings, own: Sequence[BackendAddress]) -> Settings:
    """Settings in which deployments reach the servers that this process started, beside those that are named."""
    if not own:
        return settings
    networks = parse_networks(settings.gateway.allowed_networks)
    named = settings.deploy.urls or tuple(address.url for address in parse_backends(settings.gateway.backends, networks))
    urls = dict.fromkeys([*named, *(address.url for address in own)])
    deploy = settings.deploy.model_copy(update={"replicas": ", ".join(urls)})
    return settings.model_copy(update={"deploy": deploy})
