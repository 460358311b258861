"""`medloop api`: serve the HTTP API and the web pages of a workspace, on this machine only."""

import re
import resource
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Annotated

import typer

from medloop.api.limits import RequestLimits
from medloop.cli import ui
from medloop.cli.users import keys_app
from medloop.contracts import ModelRef
from medloop.errors import ConfigError, InputError, MissingExtraError
from medloop.loop.assistant import check_assistant
from medloop.loop.model_servers import with_own
from medloop.models import require_packages
from medloop.models.find import resolve_chat_model
from medloop.serve.gateway.backends import BackendAddress
from medloop.serve.gateway.model_child import ModelChild
from medloop.settings import Settings
from medloop.store import passwords
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.files.private import tighten
from medloop.store.records import users

OTHER_FILES = 256  # of the database, the scan workers, the log

api_app = typer.Typer(no_args_is_help=True, help="Serve the HTTP API and the web pages; manage API keys.")
api_app.add_typer(keys_app, name="keys")  # 'medloop keys' are the encryption keys of the store


def register(app: typer.Typer) -> None:
    app.add_typer(api_app, name="api")


@api_app.command("serve")
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 picks a free one.")] = 8000,
    slots: Annotated[int, typer.Option(min=1, max=64, help="Training jobs that run at once.")] = 1,
    rate: Annotated[float, typer.Option(min=0.1, help="Requests per second for one API key; twice that in a burst.")] = 200,
    in_flight: Annotated[
        int,
        typer.Option(
            min=1,
            max=4096,
            help="Requests with a body handled at once; one caller gets at most three quarters of them, what is above gets 503.",
        ),
    ] = 256,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Public host name of a TLS proxy on this machine; may be repeated."),
    ] = None,
    with_model: Annotated[
        str | None,
        typer.Option(
            help="Also start a model server for it ('medloop serve'): embedded:NAME, a folder, a GGUF file, or a hub id."
        ),
    ] = None,
) -> None:
    """Serve the API and the web pages on 127.0.0.1, and run training jobs.

    Where no admin is active, the start creates the user 'admin' and prints the password.

    Example:  medloop api serve --port 8000

    Example:  medloop api serve --with-model embedded:tiny
    """
    if find_spec("fastapi") is None or find_spec("uvicorn") is None:
        raise MissingExtraError.of("The API", "api")
    settings, names = ui.settings(), tuple(name or ())
    for public in names:
        if not re.fullmatch(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", public):
            raise ConfigError(
                f"--name: '{public[:64]}' is not a host name", "Example: --name feedback.example.org, without https:// and port"
            )
    check_assistant(settings)
    ui.say_private(tighten(settings.workspace))
    listener = _listen(port)
    _first_admin(settings)
    with ExitStack() as stack:
        backends = [stack.enter_context(_model_child(with_model, settings).running())] if with_model else []
        if backends:
            ui.say(f"The model {with_model} is loading, see {backends[0].log}.")
        settings = with_own(settings, backends)  # the watch beside the API gives the server the version that is live
        _serve(settings, listener, names, slots=slots, limits=RequestLimits(rate, in_flight), backends=backends)


def _model_child(model: str, settings: Settings) -> ModelChild:
    """A server for this model; a model that does not exist is said now, not by a process that dies again and again."""
    require_packages()
    resolve_chat_model(ModelRef(base=model), settings)
    return ModelChild(model, settings)


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(2048)  # who connects as soon as the address is printed waits, and is not refused
    except OSError:
        listener.close()
        raise ConfigError(f"Port {port} is in use", "Choose another one with --port") from None
    return listener


def _serve(
    settings: Settings, listener: socket.socket, names: tuple[str, ...], *, slots: int, limits: RequestLimits,
    backends: Sequence[BackendAddress] = (),
) -> None:  # fmt: skip
    """Until a signal ends it."""
    from medloop.api.request_filter import LOOPBACK  # fastapi and uvicorn are the optional extra 'api'
    from medloop.api.server import ApiServer
    from medloop.web.app import create_app

    app = create_app(settings, hosts=(*LOOPBACK, *names), slots=slots, limits=limits, own_process=True, backends=backends)
    server = ApiServer(app, _connections(2000 + limits.in_flight))
    for number in (signal.SIGTERM, signal.SIGINT):  # for signals that come before uvicorn's handlers, and that it raises again
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    ui.say(f"Serving http://127.0.0.1:{listener.getsockname()[1]}; Ctrl-C stops the server, running jobs continue.")
    server.run(sockets=[listener])


def _connections(wanted: int) -> int:
    """How many connections this process may have at once: each is a file, and many systems start processes with 1024 of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(soft, wanted + OTHER_FILES if hard == resource.RLIM_INFINITY else min(hard, wanted + OTHER_FILES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(16, min(wanted, most - OTHER_FILES))


def _first_admin(settings: Settings) -> None:
    """Without an active admin, the start creates one with a generated password; without the encryption key it stops.

    No account that exists is changed: whoever disabled 'admin' finds it disabled.
    """
    with open_store(settings) as store:
        with store.read() as conn:
            store.keys.master(conn)  # the app needs it too; here the error is one sentence
        known = users.list_users(store)
        if any(user.role == "admin" and not user.disabled and not user.waits for user in known):
            return
        if any(user.name == "admin" for user in known):
            ui.next_step("users add NAME --role admin", "No admin is active. Add one:")
            return
        password = passwords.generate_password()
        try:
            users.add_user(store, "admin", "admin", password=password, actor=actor(), temporary=True)
        except InputError:  # another start has just created it, and has printed its password
            return
    ui.say(f"Log in on the page below as 'admin' with the password: {password}")
    ui.say("It is shown only once, and you choose your own when you log in.")
    ui.next_step("users add NAME --role ROLE", "Add users:")
    ui.next_step("api keys new NAME", "Give them API keys:")
