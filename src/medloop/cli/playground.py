"""`medloop playground`: a page to try versions side by side, in an environment of its own that knows medloop only over HTTP."""

import json
import os
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ConfigError
from medloop.isolation import isolated
from medloop.service import check_address

PAGE = Path(__file__).parents[1] / "client/playground/page.py"
KEY = "MEDLOOP_PLAYGROUND_KEY"
NEW_KEY = "Make one with: medloop api keys new NAME --scope chat --scope feedback:write"
NO_SECRETS = ("MEDLOOP_", "LANGFUSE_", "DEEPSEEK_", "MLFLOW_", "AWS_", "OPENAI_")


def register(app: typer.Typer) -> None:
    app.command("playground")(playground)


def playground(
    url: Annotated[str, typer.Option(help="Address of medloop's API.")] = "http://127.0.0.1:8000",
    server: Annotated[
        list[str] | None,
        typer.Option(help="A further server with OpenAI's endpoints, such as http://127.0.0.1:8100; may be repeated."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the page, on this machine only; 0: any.")] = 7860,
    python: Annotated[
        Path, typer.Option(metavar="FILE", help="Python of the environment with Gradio ('make playground-env').")
    ] = Path(".venv-playground/bin/python"),
) -> None:
    """Open a page that compares versions side by side, with sampling, batches from a file, and a button to send to review.

    The page runs in its own environment, talks to the API with a key from the variable MEDLOOP_PLAYGROUND_KEY, and does not open
    the workspace. It is for testing on this machine: it answers only to 127.0.0.1 and makes no share link.

    Example:  medloop playground --url http://127.0.0.1:8000 --server http://127.0.0.1:8100
    """
    key = os.environ.get(KEY, "").strip()
    if not key:
        raise ConfigError(f"The playground needs an API key in the variable {KEY}", NEW_KEY)
    if not python.is_file():
        raise ConfigError(f"The playground needs an environment of its own, and {python} does not exist", "make playground-env")
    addresses = [
        check_address("The API", url, "--url"),
        *(check_address("The server", name, "--server") for name in server or ()),
    ]
    given = {"url": addresses[0], "key": key, "servers": addresses[1:], "port": port}
    clean = {name: value for name, value in isolated(os.environ).items() if not name.startswith(NO_SECRETS)}
    process = subprocess.Popen(
        [str(python.absolute()), "-P", str(PAGE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**clean, "PYTHONPATH": ""}, cwd=Path(python.absolute().root),
    )  # fmt: skip
    assert process.stdin and process.stdout
    try:
        process.stdin.write(json.dumps(given) + "\n")
        process.stdin.flush()
        address = process.stdout.readline().strip()
        if address:
            ui.say(f"The playground is at {address} (Ctrl-C ends it).")
        code = process.wait()
    except KeyboardInterrupt:
        code = 0
    finally:
        process.stdin.close()  # it ends with this pipe
        process.wait()
        process.stdout.close()
    if code:
        raise typer.Exit(code)
