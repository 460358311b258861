"""`medloop site`: the places that share this workspace, and who belongs to them."""

from dataclasses import asdict
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import ConfigError
from medloop.loop.deploy import deploy_site, end_site_champion, open_fleet, route_at
from medloop.privacy.phi.reason import checked_reason
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import sites, users

site_app = typer.Typer(no_args_is_help=True, help="Sites with their own users, rules and experiments in one store.")


def register(app: typer.Typer) -> None:
    app.add_typer(site_app, name="site")


@site_app.command("list")
def list_(json_: ui.AsJson = False) -> None:
    """List the sites: their users, what answers there, the live rules that hold there alone, the running experiment.

    Example:  medloop site list
    """
    with open_store(ui.settings()) as store:
        known = sites.list_sites(store)
        routes = {row.site: route_at(store, row.site) for row in known}
    live = {name: route.served_name if route else None for name, route in routes.items()}
    if json_:
        ui.say_json([asdict(row) | {"champion": live[row.site]} for row in known])
        return
    rows = [(row.site, str(row.users), live[row.site] or "", str(row.rules), row.experiment or "") for row in known]
    ui.table(("site", "users", "answers", "own rules", "running experiment"), rows)
    if len(known) == 1:
        ui.next_step("site assign NAME SITE", "Every user is central staff. Give a site its first user:")


@site_app.command("champion")
def champion(
    site: Annotated[str, typer.Argument(help="The site whose answers change.")],
    version: Annotated[int | None, typer.Argument(min=1, help="A version of the registry that may be promoted.")] = None,
    none: Annotated[bool, typer.Option("--none", help="No champion of its own: that of main answers at once.")] = False,
    reason: Annotated[str, typer.Option(help="Why, for the audit log; without names of people.")] = "",
) -> None:
    """Let a version answer at one site, whatever the champion of the workspace is: load it on every model server, ask the
    canaries, switch. It stays until another one is named, --none takes it away, or it is blocked ('medloop deploy block', or by
    an alarm about it); from then on the site has the champion of main.

    Example:  medloop site champion ward-7 3 --reason "trained on its own corrections"

    Example:  medloop site champion ward-7 --none --reason "as main again"
    """
    if none is (version is not None):
        raise ConfigError("Name a version, or say --none", "medloop site champion SITE VERSION")
    if version is None:
        with open_store(ui.settings()) as store:
            before = end_site_champion(store, site, actor=actor(), reason=checked_reason(reason))
        ui.say(f"The champion of main answers at {site}; before it was {before.served_name}.")
        return
    with open_store(ui.settings()) as store, open_fleet(store) as fleet:
        outcome = deploy_site(fleet, site, version, actor=actor(), reason=reason)
    ui.say(f"{outcome.route.served_name} answers at {site}{'' if outcome.changed else ' already'}.")


@site_app.command("assign")
def assign(
    name: Annotated[str, typer.Argument(help="Name of the user: a clinician, or an engineer whose keys are a program's.")],
    site: Annotated[str, typer.Argument(help="Small letters, digits and -; 'main' are the central staff.")],
) -> None:
    """Let a user belong to a site: the assistant answers them by the rules and the experiment of that site, and they
    read and judge nothing but what was said there. Their sessions end and their API keys are revoked.

    Example:  medloop site assign dr.li ward-7
    """
    with open_store(ui.settings()) as store:
        keys = sites.assign(store, users.get_user(store, name), site, actor=actor())
    revoked = f" {keys} API keys were revoked." if keys else ""
    ui.say(f"{name} belongs to the site {site} now.{revoked}")
    if keys:
        ui.next_step(f"api keys new {name}")
