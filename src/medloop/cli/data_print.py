"""What `medloop data prepare` says about identifiers, and where the rows are that it left out."""

from medloop.cli import ui
from medloop.contracts.dataset import DatasetCard
from medloop.data.prepare.prepare import quarantine_file
from medloop.settings import Settings


def say_scrubbed(card: DatasetCard, settings: Settings) -> None:
    if card.scrub is None:
        ui.say("Personal identifiers were not removed (--no-scrub).")
        return
    ui.say(f"Personal identifiers were removed from {card.scrub['rows_changed']:,} rows.")
    if held := card.scrub["rows_held"]:
        ui.say(f"{held:,} rows may still identify a person and were left out: {ui.shown(quarantine_file(settings.workspace))}")
        ui.say("  It has them unchanged, with source, line and reason; only you can read it. To use such a row, remove what")
        ui.say("  identifies somebody from it in your own file, then import that with --replace and prepare again.")
        ui.say("  'medloop quarantine' has records of feedback, and none of these.")


def say_rows_left_out(settings: Settings) -> None:
    """For whoever looks for those rows among the records of feedback that wait."""
    if (file := quarantine_file(settings.workspace)).is_file():
        ui.say(f"Rows of imported files that 'medloop data prepare' left out are not listed here; they are in {ui.shown(file)}.")
