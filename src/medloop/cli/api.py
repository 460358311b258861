"""`medloop api`: the HTTP door of a workspace, on this machine only, behind a key."""

from __future__ import annotations

from typing import Annotated

import typer

from medloop.cli import common

api_app = typer.Typer(no_args_is_help=True, help="The HTTP door: serve it, make keys for it.")


def register(app: typer.Typer) -> None:
    app.add_typer(api_app, name="api")


@api_app.command("serve")
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")] = 8000,
    slots: Annotated[int, typer.Option(min=1, max=64, help="So many training jobs at once.")] = 1,
) -> None:
    """Serve the API on 127.0.0.1 and run the queue of training jobs. The first start makes a key and shows it once.

    Example:  medloop api serve --port 8000
    """
    _require()
    import signal
    import socket

    import uvicorn

    from medloop.api.app import create_app
    from medloop.api.auth import new_key, read_keys
    from medloop.errors import ConfigError

    settings = common.settings()
    if not read_keys(settings):
        _show(new_key(settings))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        raise ConfigError(f"Port {port} is taken", "Name another with --port") from None
    common.say(f"Serving http://127.0.0.1:{listener.getsockname()[1]}; Ctrl-C ends it, and jobs that run go on.")
    # No proxy headers and no server banner; requests that are being answered get five seconds at the end.
    config = uvicorn.Config(
        create_app(settings, slots=slots), log_level="warning", server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=5, timeout_keep_alive=5, limit_concurrency=200,
    )  # fmt: skip
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn drains and then raises the signal again: the end it asked for is here
    uvicorn.Server(config).run(sockets=[listener])


@api_app.command("key")
def key(
    only: Annotated[bool, typer.Option("--only", help="Withdraw all other keys.")] = False,
) -> None:
    """Make a further key and show it, once.

    Example:  medloop api key --only
    """
    _require()
    from medloop.api.auth import new_key

    _show(new_key(common.settings(), only=only))


def _show(text: str) -> None:
    common.say(f"Key: {text}")
    common.say("It is shown this once; only its hash is kept. Send it as 'Authorization: Bearer KEY'.")


def _require() -> None:
    from importlib.util import find_spec

    from medloop.errors import MissingExtraError

    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise MissingExtraError.of("The API", "api")
