"""`medloop gate policy`: what every model has to show in this workspace, and the clinicians who decide that."""

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.cli.login import logged_in
from medloop.contracts.gate_config import GateConfig
from medloop.knobs import load_config
from medloop.loop.gate_policy import adopt, policy_of, withdraw
from medloop.store.db import open_store
from medloop.store.records import users

policy_app = typer.Typer(no_args_is_help=True, help="What every model has to show here, and who decided that.")


@policy_app.command("show")
def show(as_json: ui.AsJson = False) -> None:
    """Show the settings of the policy that differ from the defaults, and who adopted it.

    Example:  medloop gate policy show
    """
    with open_store(ui.settings()) as store:
        policy, names = policy_of(store), users.names(store)
    if as_json:
        ui.say_json({"settings": policy.config.model_dump(mode="json"), "adopted_by": policy.adopted_by, "since": policy.since})
        return
    if policy.since is None:
        ui.say("The policy is the defaults of medloop (configs/gate.yaml): no clinician has adopted another one.")
        return
    people = " and ".join(names.get(person, person) for person in policy.adopted_by)
    ui.say(f"Adopted by {people} on {policy.since:%Y-%m-%d %H:%M}Z.")
    changed = policy.config.changed()
    if changed:
        ui.table(("setting", "value"), list(changed.items()))
    else:
        ui.say("It has the values of the defaults of medloop.")


@policy_app.command("adopt")
def adopt_(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Settings, as in configs/gate.yaml; others stay as the policy has them."),
    ],
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Your user name; the password is asked for.")],
) -> None:
    """Adopt settings as the policy, as a clinician. One that weakens the policy counts when a second clinician adopts it, too.

    Example:  medloop gate policy adopt gate.yaml --user dr.li
    """
    with open_store(ui.settings()) as store:
        policy = policy_of(store).config.model_dump(mode="json")
        config = load_config(GateConfig, file=file, flags={}, defaults=policy)
        person = logged_in(store, user)
        adopted = adopt(store, config, by=person.user_id)
    for row in adopted.weaker:
        ui.say(f"Weaker than the policy: {row.name} = {ui.printable(row.value)} instead of {ui.printable(row.policy)}.")
    if adopted.waits:
        ui.say("The policy stays as it was until a second clinician adopts the same settings.")
        ui.next_step(f"gate policy adopt {ui.shown(file)} --user NAME", "They adopt them with:")
    else:
        ui.say("These settings are the policy now: 'medloop gate', its page, its route and the loop use them.")


@policy_app.command("withdraw")
def withdraw_(
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Your user name; the password is asked for.")],
) -> None:
    """Take back the weaker settings that you asked for and that no second clinician has adopted yet.

    Example:  medloop gate policy withdraw --user dr.li
    """
    with open_store(ui.settings()) as store:
        person = logged_in(store, user)
        taken = withdraw(store, by=person.user_id)
    for row in taken:
        changed = ", ".join(f"{less.name} = {ui.printable(less.value)}" for less in row.weaker)
        ui.say(f"Taken back: {changed}. The policy stays as it is.")
