"""`medloop reward validate`: does the reward agree with people?"""

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts.validity import ValidityCard
from medloop.errors import ResultError
from medloop.knobs import load_config, split_pairs
from medloop.loop import trust
from medloop.loop.scoring import given_parts
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.trust import ALL, TrustConfig, read_cases, rows_of
from medloop.reward.trust_page import WORDS, measure_row
from medloop.store.audit_trail import open_audit_trail


def validate(
    cases: Annotated[list[Path], typer.Argument(help="Labelled cases: JSON lines, gzipped or not; see docs/stages/trust.md.")],
    config: ui.RewardFile = None,
    with_: ui.RewardParts = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One bound: recall, precision, agreement, min_cases; may be repeated."),
    ] = None,
    fail_on_untrusted: Annotated[
        bool, typer.Option("--fail-on-untrusted", help="Exit with code 10 if a judge is untrusted.")
    ] = False,
    json_: ui.AsJson = False,
) -> None:
    """Compare the reward with what people said: recall, precision and agreement of every part, with intervals.

    A line has a question with one of: "urgency" (emergent, urgent, routine); an "answer" with "faults" such as
    {"risk": true}; or two answers, "chosen" and "rejected". The card is kept, and training reads it.

    Example:  medloop reward validate clinic_labels.jsonl pairs.jsonl.gz
    """
    settings = ui.settings()
    bounds = load_config(TrustConfig, file=None, pairs=set_ or (), flags={})
    mix_config = load_config(MixConfig, file=config, pairs=(), flags={})
    labelled = read_cases(cases)
    mix = build_mix(mix_config, given_parts(settings, split_pairs("--with", with_ or (), bare=True)))
    with open_audit_trail(settings) as trail, ui.progress("Measuring") as bar:
        card, folder = trust.validate(settings, labelled, mix, config=bounds, progress=bar.update)
        trail.record("reward.validate", folder, cases=card.n_cases, reward=card.reward_version)
    if json_:
        ui.say_json(card.model_dump(mode="json"))
    else:
        _show(card, folder)
    untrusted = [row.judge for row in card.judges if row.verdict == "untrusted"]
    if untrusted and fail_on_untrusted:
        raise ResultError(f"Untrusted: {', '.join(untrusted)}", f"Read {ui.shown(folder / 'validity.md')}")


def _show(card: ValidityCard, folder: Path) -> None:
    ui.table(
        ("judge", "quantity", "value", "95 % interval", "cases", "ties", "missing"),
        [measure_row(row) for row in card.measures if row.slice == ALL],
    )
    ui.say()
    for judge, verdict, reason, _ in rows_of(card):
        ui.say(f"{judge}: {WORDS[verdict]} ({reason}).")
    ui.say(f"The card: {ui.shown(folder)} (validity.md, validity.json)")
