"""`medloop data import langfuse`: traces and scores of a Langfuse project, into the store."""

from collections.abc import Sequence
from typing import cast, get_args

from medloop.cli import ui
from medloop.contracts.feedback import Purpose
from medloop.errors import ConfigError
from medloop.loop.langfuse_import import ImportCounts, ImportWish, import_langfuse
from medloop.settings import Settings
from medloop.store.audit_trail import actor, open_audit_trail

PURPOSES: tuple[str, ...] = get_args(Purpose)


def import_from_langfuse(settings: Settings, *, since: str, consent: Sequence[str], rater: str, as_json: bool) -> None:
    if unknown := sorted(set(consent) - set(PURPOSES)):
        raise ConfigError(f"--consent: '{unknown[0]}' is unknown", f"Use {', '.join(PURPOSES)}")
    purposes = cast(tuple[Purpose, ...], tuple(name for name in PURPOSES if name in consent))
    wish = ImportWish(ui.parse_since(since) if since else None, purposes, rater)
    with open_audit_trail(settings) as trail, ui.progress("Langfuse") as bar:
        counts = import_langfuse(settings, trail.store, wish, actor=actor(), on_rows=bar)
    if as_json:
        ui.say_json(counts.as_json())
    else:
        _say(counts)


def _say(counts: ImportCounts) -> None:
    ui.say(f"{counts.traces_new:,} new traces, {counts.traces_known:,} were known.")
    kinds = {"up": counts.up, "down": counts.down, "stars": counts.stars, "comments": counts.comments}
    said = ", ".join(f"{name} {n:,}" for name, n in {**kinds, "corrections": counts.corrections}.items() if n)
    ui.say(f"{counts.scores_new:,} new scores{f' ({said})' if said else ''}, {counts.scores_known:,} were known.")
    for number, words in (
        (counts.scores_changed, "of them changed at Langfuse and supersede their earlier record"),
        (counts.unfinished, "traces are not finished; a later import reads them"),
        (counts.unreadable, "traces have no question and answer that can be read"),
        (counts.unknown_scores, "scores say nothing that is known here"),
        (counts.without_trace, "scores are about a trace that Langfuse does not show; a later import looks again for a day"),
        (counts.held, "records may still name a person and wait in quarantine"),
    ):
        if number:
            ui.say(f"{number:>9,}  {words}")
    if counts.queued:
        ui.say(f"Answers that went to the review queue: {counts.queued:,}.")
        ui.next_step("feedback queue list", "See them:")
    if counts.held:
        ui.next_step("quarantine list", "Review what is held:")
    ui.next_step("data build")
