"""`medloop api`: the HTTP door of a workspace, on this machine only, behind a login or a key."""

from __future__ import annotations

import re
import signal
import socket
from importlib.util import find_spec
from typing import Annotated

import typer

from medloop.api.limits import RequestLimits
from medloop.cli import ui
from medloop.cli.users import keys_app
from medloop.errors import ConfigError, MissingExtraError
from medloop.settings import Settings
from medloop.store import passwords
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import users

api_app = typer.Typer(no_args_is_help=True, help="The HTTP door: the API and the web pages, and keys for programs.")
api_app.add_typer(keys_app, name="keys")  # 'medloop keys' are those that encrypt the store


def register(app: typer.Typer) -> None:
    app.add_typer(api_app, name="api")


@api_app.command("serve")
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 8000,
    slots: Annotated[int, typer.Option(min=1, max=64, help="So many training jobs at once.")] = 1,
    rate: Annotated[float, typer.Option(min=0.1, help="Requests per second that one key may send; twice that in a burst.")] = 200,
    in_flight: Annotated[int, typer.Option(min=1, max=4096, help="So many writes at once; the next ones get 503.")] = 256,
    name: Annotated[
        list[str] | None, typer.Option(help="A public name under which a TLS proxy on this machine serves it; may be repeated.")
    ] = None,
) -> None:
    """Serve the API and the web pages on 127.0.0.1, and run training jobs. The first start makes an admin and says how to log in.

    Example:  medloop api serve --port 8000
    """
    _require()

    import uvicorn

    from medloop.api.request_filter import LOOPBACK
    from medloop.api.slow_clients import SlowClientProtocol
    from medloop.web.app import create_app

    settings, names = ui.settings(), tuple(name or ())
    for public in names:
        if not re.fullmatch(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", public):
            raise ConfigError(
                f"'{public[:64]}' is no host name", "Example: --name feedback.example.org, without https:// and port"
            )
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        raise ConfigError(f"Port {port} is taken", "Name another with --port") from None
    _first_admin(settings)
    ui.say(f"Serving http://127.0.0.1:{listener.getsockname()[1]}; Ctrl-C ends it, and jobs that run go on.")
    # No proxy headers and no server banner; requests that are being answered get five seconds at the end.
    served = create_app(settings, hosts=(*LOOPBACK, *names), slots=slots, limits=RequestLimits(rate, in_flight), own_process=True)
    config = uvicorn.Config(
        served, log_level="warning", server_header=False, proxy_headers=False, timeout_graceful_shutdown=5, timeout_keep_alive=5,
        limit_concurrency=2000 + in_flight, http=SlowClientProtocol,
    )  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn drains and then raises the signal again: the end it asked for is here
    uvicorn.Server(config).run(sockets=[listener])


def _first_admin(settings: Settings) -> None:
    """The first start makes the one user that can let others in; there is no default password. No start without a good key."""
    with open_store(settings) as store:
        with store.read() as conn:
            store.keys.master(conn)  # the app asks for it, too; here its owner is told in a sentence
        if users.list_users(store):
            return
        password = passwords.generated()
        users.add_user(store, "admin", "admin", password=password, actor=actor())
    ui.say(f"Log in on the page below as 'admin' with the password: {password}")
    ui.say("It is shown this once. Others: medloop users add NAME --role ROLE; keys for programs: medloop api keys new NAME.")


def _require() -> None:

    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise MissingExtraError.of("The API", "api")
