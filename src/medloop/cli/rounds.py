"""`medloop rounds`: rounds of RL, which of them is in use, and the way back to SFT."""

from typing import Annotated

import typer

from medloop.cli import ui
from medloop.loop import rounds
from medloop.store.audit_trail import actor, open_audit_trail

rounds_app = typer.Typer(no_args_is_help=True, help="Rounds of RL: list them, accept one, go back to SFT or an earlier one.")


def register(app: typer.Typer) -> None:
    app.add_typer(rounds_app, name="rounds")


@rounds_app.command("list")
def list_(as_json: ui.AsJson = False) -> None:
    """List SFT and the rounds, what each started from, what was decided about it and why.

    Example:  medloop rounds list
    """
    settings = ui.settings()
    with open_audit_trail(settings) as trail:
        listed = rounds.list_rounds(settings, trail.store)
    if as_json:
        ui.say_json(listed)
        return
    if not listed:
        ui.say("There are no rounds yet.")
        ui.next_step("train sft --name sft")
        return
    rows = [
        (
            "SFT" if row.number == 0 else str(row.number), row.state, row.path, row.method, row.start,
            row.event.reason if row.event and row.state == "refused" else "",
        )
        for row in listed
    ]  # fmt: skip
    ui.table(("round", "state", "adapter", "method", "started from", "reason"), rows)


@rounds_app.command("accept")
def accept(number: Annotated[int, typer.Argument(min=1, help="Number of the round.")]) -> None:
    """Put a round into use, if the gate has let exactly these bytes pass; otherwise what was in use stays, with the reason.

    Example:  medloop rounds accept 1
    """
    with open_audit_trail(ui.settings()) as trail:
        event = rounds.accept(trail.store, number, actor=actor())
    ui.say(f"Round {number} is in use: {event.path}. The next round starts from it.")
    ui.next_step(f"release v{number}.0-rl")


@rounds_app.command("rollback")
def rollback(
    to: Annotated[int, typer.Option("--to", min=0, help="Round to use again; 0 is SFT.")] = 0,
    reason: Annotated[str, typer.Option(help="Why, for the audit log. Do not name patients.")] = "",
) -> None:
    """Use SFT, or an earlier accepted round, again, unless an erasure tainted it. Nothing is deleted, and no gate is asked.

    If its bytes have been the champion of the registry, they are the champion again; else the output says why not.

    Example:  medloop rounds rollback
    """
    with open_audit_trail(ui.settings()) as trail:
        done = rounds.roll_back(trail.store, to, actor=actor(), reason=reason)
    ui.say(f"{'SFT' if to == 0 else f'Round {to}'} is in use again: {done.event.path}. The next round starts from it.")
    if done.champion is not None:
        ui.say(f"Version {done.champion} of the registry, the same bytes, is the champion again.")
        if done.lag:
            ui.say(f"MLflow does not have it yet; 'medloop registry list' or the next change sends it: {done.lag}")
    elif done.kept:
        ui.say(f"{done.kept}.")
        ui.next_step(done.command, "Move it with:")
    if done.served is not None:
        ui.say(f"Version {done.served} still answers on the model servers.")
        ui.next_step('rollback --reason "an earlier round is in use again"', "Take it off them with:")
