"""What `medloop data prepare` says about the personal identifiers it removed."""

from medloop.cli import ui
from medloop.contracts import DatasetCard
from medloop.data.prepare.prepare import quarantine_file


def say_scrubbed(card: DatasetCard) -> None:
    if card.scrub is None:
        ui.say("Personal identifiers were not removed (--no-scrub).")
        return
    ui.say(f"Personal identifiers were removed from {card.scrub['rows_changed']:,} rows.")
    if held := card.scrub["rows_held"]:
        file = ui.shown(quarantine_file(ui.settings().workspace))
        ui.say(f"{held:,} rows may still identify a person and were left out: {file}")
