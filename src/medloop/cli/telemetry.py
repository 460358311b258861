"""`medloop telemetry`: traces and feedback for Langfuse and OpenTelemetry collectors."""

import typer

from medloop.cli import ui
from medloop.loop.send_telemetry import send_pending, statuses
from medloop.store.db import open_store

telemetry_app = typer.Typer(no_args_is_help=True, help="Send traces and feedback to Langfuse or an OpenTelemetry collector.")


def register(app: typer.Typer) -> None:
    app.add_typer(telemetry_app, name="telemetry")


@telemetry_app.command("send")
def send(json_: ui.AsJson = False) -> None:
    """Send what waits, to every destination that is switched on. The API does this by itself while it serves.

    No text is sent unless langfuse.send_text or telemetry.send_text allows it, and then without identifiers.

    Example:  medloop telemetry send
    """
    settings = ui.settings()
    with open_store(settings) as store, ui.progress("Sending") as bar:
        sent = send_pending(settings, store, on_rows=bar)
    if json_:
        ui.say_json(sent)
        return
    for name, counts in sent.items():
        ui.say(f"{name}: {counts.traces:,} traces and {counts.feedback:,} ratings sent.")
        if counts.without_text:
            ui.say(f"{counts.without_text:>9,}  without their text: it may name a person, or a consent was withdrawn")
        if counts.deleted:
            ui.say(f"{counts.deleted:>9,}  deleted there, because they were erased here")


@telemetry_app.command("status")
def status(json_: ui.AsJson = False) -> None:
    """Show where traces and feedback are sent, and how much waits.

    Example:  medloop telemetry status
    """
    settings = ui.settings()
    with open_store(settings) as store:
        found = statuses(settings, store)
    if json_:
        ui.say_json([entry.as_json() for entry in found])
        return
    if not found:
        ui.say("Nothing is sent anywhere: langfuse.send is off and telemetry.otlp_url is empty.")
        return
    rows = [
        (entry.name, ui.printable(entry.address), "yes" if entry.sends_text else "no", f"{entry.waiting:,}",
         ", ".join(f"{kind} {n:,}" for kind, n in sorted(entry.sent.items())) or "nothing", f"{entry.to_delete:,}")
        for entry in found
    ]  # fmt: skip
    ui.table(("destination", "address", "text", "waiting", "sent", "to delete"), rows)
    if any(entry.waiting or entry.to_delete for entry in found):
        ui.next_step("telemetry send", "Send it now:")
