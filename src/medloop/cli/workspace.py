"""`medloop init` and `medloop config`: create a workspace, show its settings."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.loop.workspace import init_workspace
from medloop.settings import FIELDS, is_secret

config_app = typer.Typer(no_args_is_help=True, help="Show the settings and where each value comes from.")


def register(app: typer.Typer) -> None:
    app.command("init")(init)
    app.add_typer(config_app, name="config")


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to create or complete.")],
) -> None:
    """Create a workspace: folders, medloop.yaml, an encryption key, an empty database. Safe to repeat.

    Example:  medloop init clinic && cd clinic
    """
    done = init_workspace(folder, ui.given_flags())
    ui.say(f"Workspace {ui.shown(folder.absolute())} is ready ({'new' if done.is_new else 'it existed, nothing changed'}).")
    ui.say_private(done.private)
    ui.next_step("data import FILE --name NAME", f"Next: cd {shlex.quote(ui.shown(folder.absolute()))} &&")


@config_app.command("show")
def show(
    json_: ui.AsJson = False,
) -> None:
    """Print every setting with its value and where the value comes from; secrets are masked.

    Example:  medloop config show
    """
    resolved = ui.resolved()
    rows = []
    for name, field in FIELDS.items():
        value = resolved.settings.get(name)
        text = "" if value is None else "********" if is_secret(name) and value else str(value)
        rows.append({"name": name, "value": text, "from": resolved.origins[name], "about": field.description or ""})
    if json_:
        ui.say_json(rows)
        return
    ui.table(("setting", "value", "from", "about"), [tuple(row.values()) for row in rows])
