"""`medloop reward fit`: weights of the reward from people's labels."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.cli.reward_validate import FromUse, gather_cases
from medloop.errors import InputError
from medloop.knobs import load_config, split_pairs
from medloop.loop.scoring import given_parts
from medloop.reward.fit import FitConfig, FittedWeights, fit_weights
from medloop.reward.fit_file import HEAD, fit_yaml, measured
from medloop.reward.mix import MixConfig, build_mix
from medloop.store.audit_trail import open_audit_trail
from medloop.store.files.atomic import atomic_write, require_writable


def fit(
    cases: Annotated[
        list[Path] | None, typer.Argument(help="Labelled cases: JSON lines, gzipped or not; see docs/stages/trust.md.")
    ] = None,
    from_use: FromUse = None,
    config: ui.RewardFile = None,
    with_: ui.RewardParts = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for the new weights (default: data/rl/reward.yaml).")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting: folds, min_pairs, min_questions, seed; may be repeated."),
    ] = None,
    json_: ui.AsJson = False,
) -> None:
    """Fit the weights of the reward to what people preferred, and write them as a new reward file.

    Pairs of answers ("chosen", "rejected") and labelled faults decide. A pull towards the present weights, floors of the safety
    parts, and ceilings of chain and teacher limit the change. Agreement is measured on held-out questions.

    Example:  medloop reward fit clinic_pairs.jsonl --out reward.yaml

    Then:     medloop reward validate other_cases.jsonl --config reward.yaml
    """
    settings = ui.settings()
    fit_config = load_config(FitConfig, file=None, pairs=set_ or (), flags={})
    given = given_parts(settings, split_pairs("--with", with_ or (), bare=True))
    mix = build_mix(load_config(MixConfig, file=config, pairs=(), flags={}), given)
    target = (out or settings.workspace.rl / "reward.yaml").expanduser().absolute()
    _require_free(target)
    with open_audit_trail(settings) as trail:
        labelled, _ = gather_cases(trail, cases or [], from_use, False, ("evaluation",))
        with ui.progress("Scoring") as bar:
            fitted = fit_weights(labelled, mix, config=fit_config, progress=bar.update)
        sources = dict(Counter(case.source or "" for case in labelled))
        command = " ".join(["medloop reward fit", *map(str, cases or [])])
        atomic_write(target, fit_yaml(fitted, sources=sources, command=command))
        trail.record("reward.fit", target, cases=len(labelled), before=fitted.base_version)
    if json_:
        ui.say_json(fitted.model_dump(mode="json"))
        return
    _show(fitted)
    ui.say(f"New weights: {ui.shown(target)}")
    ui.say(f"Measure them before you train on them: medloop reward validate CASES --config {ui.shown(target)}")


def _require_free(target: Path) -> None:
    """An earlier result may be replaced; a file that somebody wrote may not."""
    require_writable(target)
    if target.exists() and not target.read_text(encoding="utf-8").startswith(HEAD):
        raise InputError(f"{ui.shown(target)} exists and was not written by 'reward fit'", "Name another file with --out")


def _show(fitted: FittedWeights) -> None:
    rows = [
        (name, f"{fitted.before[name]:+g}", f"{part.weight:+g}", fitted.unchanged.get(name, ""))
        for name, part in fitted.mix.parts.items()
    ]
    ui.table(("part", "before", "now", "kept, because"), rows)
    ui.say()
    ui.say(f"{fitted.pairs:,} pairs on {fitted.questions:,} questions, {fitted.faults:,} labelled answers.")
    ui.say(f"Agreement on held-out questions before: {measured(fitted.old)}.")
    ui.say(f"Agreement on held-out questions now:    {measured(fitted.new)}.")
    if len(fitted.by_source) > 1:
        for source, (old, new) in fitted.by_source.items():
            ui.say(f"  {source}: {measured(old)} -> {measured(new)}")
    low = fitted.difference.low or 0.0
    verdict = "The new weights agree more." if low > 0 else "This does not show that the new weights agree more."
    ui.say(f"Difference: {fitted.difference.mean:+.3f} [{low:+.3f}, {fitted.difference.high or 0.0:+.3f}]. {verdict}")
    for note in fitted.notes:
        ui.say(f"Safety: {note}.")
