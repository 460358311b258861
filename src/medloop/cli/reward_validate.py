"""`medloop reward validate`: does the reward agree with people?"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import reward_drift, ui
from medloop.cli.reward_judge import DwFile, ModelAlone, TeacherFile, judge_source
from medloop.contracts.feedback import Purpose
from medloop.contracts.validity import ALL, LabelledCase, ValidityCard, left_out_lines
from medloop.data.feedback.labels import UseLabels, labels_from_use
from medloop.errors import ConfigError, InputError, ResultError
from medloop.knobs import load_config
from medloop.loop import trust
from medloop.loop.feedback import rater_weights
from medloop.loop.judge_drift import check_drift, traffic_profile
from medloop.loop.scoring import judge_of, kept_source, teachers_of
from medloop.reward.judge_drift import DriftConfig
from medloop.reward.trust import BUNDLED, TrustConfig, bundled_cases, read_cases, rows_of
from medloop.reward.trust_page import NO_EVIDENCE, READ_COLUMNS, READ_NOTE, WORDS, measure_row, read_rows, repeats_note
from medloop.reward.unknown_fault import UnknownFaultError
from medloop.store.audit_trail import AuditTrail, actor, open_audit_trail
from medloop.store.files.jsonl import numbered

FromUse = Annotated[
    bool | None,
    typer.Option(
        "--from-use/--no-from-use",
        help="Take labels from votes, corrections, ratings and critical flags (default: where the workspace has some).",
    ),
]


def validate(
    cases: Annotated[
        list[Path] | None, typer.Argument(help="Labelled cases: JSON lines, gzipped or not; see docs/stages/trust.md.")
    ] = None,
    from_use: FromUse = None,
    bundled: Annotated[
        bool, typer.Option("--bundled", help="Try the meter on the cases in the package; they are not clinical evidence.")
    ] = False,
    config: ui.RewardFile = None,
    with_: ui.RewardParts = None,
    dw: DwFile = None,
    teacher: TeacherFile = None,
    reward_model: ModelAlone = None,
    budget: Annotated[
        float | None, typer.Option(min=0.0, help="Most that a teacher may cost, in USD; 0: only what is in its cache.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="One bound: recall, precision, agreement, missed, false_alarms, unknown, min_cases; may be repeated.",
        ),
    ] = None,
    fail_on_untrusted: Annotated[
        bool, typer.Option("--fail-on-untrusted", help="Exit with code 10 if a judge is untrusted.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also list how readers judged these parts on real answers before.")
    ] = False,
    json_: ui.AsJson = False,
) -> None:
    """Compare the reward with what people said: recall, precision and agreement of every part, with intervals.

    A line has a question with one of: "urgency" (emergent, urgent, routine); an "answer" with "faults" such as
    {"risk": true} or with "harm"; or two answers, "chosen" and "rejected". Labels from use join them. The card is kept, and
    training reads it.

    Example:  medloop reward validate clinic_labels.jsonl pairs.jsonl.gz
    """
    settings = ui.settings()
    bounds = load_config(TrustConfig, file=None, pairs=set_ or (), flags={})
    source = judge_source(config, with_, dw, teacher, reward_model)
    kind, judge = judge_of(settings, source, budget=budget)
    teachers = teachers_of(judge)
    with open_audit_trail(settings) as trail:
        uses: tuple[Purpose, ...] = ("evaluation", "teacher") if teachers else ("evaluation",)
        labelled, use = gather_cases(trail, cases or [], from_use, bundled, uses)
        for asked in () if json_ else teachers:
            ui.say(
                f"The teacher {asked.config.model} may spend up to {asked.config.budget_usd:g} USD; what is in its cache is free."
            )
        traffic = () if teachers else traffic_profile(trail.store, judge, DriftConfig().traces)
        with ui.progress("Measuring") as bar, naming_lines(cases or []):
            card, folder = trust.validate(
                settings, labelled, judge, config=bounds, kind=kind, source=kept_source(settings, source), left_out=use.left_out,
                traffic=traffic, progress=bar.update,
            )  # fmt: skip
        is_kept = trust.read_card(settings, card.reward_version) == card
        drift = check_drift(settings, trail.store, judge, config=DriftConfig(), new_card=True) if is_kept else None
        trail.record("reward.validate", folder, cases=card.n_cases, reward=card.reward_version)
    if json_:
        ui.say_json(card.model_dump(mode="json"))
    else:
        _show(card, folder, is_kept=is_kept, verbose=verbose)
        if drift and (drift.raised or drift.standing):
            reward_drift.show(drift)
        for asked in teachers:
            ui.say(f"The teacher got {asked.calls:,} requests and cost {asked.spent:.4f} USD.")
            if asked.degraded:
                ui.say(f"Degraded: {asked.degraded}")
    untrusted = [row.judge for row in card.judges if row.verdict == "untrusted"]
    if untrusted and fail_on_untrusted:
        raise ResultError(f"Untrusted: {', '.join(untrusted)}", f"Read {ui.shown(folder / 'validity.md')}")


@contextmanager
def naming_lines(files: Sequence[Path]) -> Iterator[None]:
    """Whoever mends a file needs the line of a case, not only its id."""
    try:
        yield
    except UnknownFaultError as error:
        for path in files:
            for line, row in numbered(path):
                if row.get("id") == error.case_id:
                    raise InputError.at(path, line, error.problem, error.names) from None
        raise


def gather_cases(
    trail: AuditTrail, files: list[Path], from_use: bool | None, bundled: bool, uses: tuple[Purpose, ...]
) -> tuple[list[LabelledCase], UseLabels]:
    """The cases of the files and those from use; the bundled ones stand alone."""
    if bundled:
        if files or from_use:
            raise ConfigError("The bundled cases stand alone", "Leave out --bundled, or the files and --from-use")
        return bundled_cases(), UseLabels()
    labelled = read_cases(files) if files else []
    if named := next((case for case in labelled if (case.source or "").startswith(BUNDLED)), None):
        raise InputError(
            f"The case '{named.id}' has the source '{named.source}', which is kept for the cases in the package",
            "Give your own cases another source, or measure with: medloop reward validate --bundled",
        )
    use = (
        UseLabels()
        if from_use is False
        else labels_from_use(trail.store, actor=actor(), uses=uses, weights=rater_weights(trail.store))
    )
    if not labelled and not use.cases:
        nothing = "; ".join(left_out_lines(use.left_out)) or "nobody has voted, corrected or flagged anything"
        raise InputError(
            f"There are no labelled cases: no file was named, and use gives none ({nothing})",
            "Name a file of labelled cases, or see how the meter works with: medloop reward validate --bundled",
        )
    return [*labelled, *use.cases], use


def _show(card: ValidityCard, folder: Path, *, is_kept: bool, verbose: bool) -> None:
    ui.table(
        ("judge", "quantity", "value", "95 % interval", "cases", "ties", "missing"),
        [measure_row(row) for row in card.measures if row.slice == ALL],
    )
    ui.say()
    for judge, verdict, reason, _ in rows_of(card):
        ui.say(f"{judge}: {WORDS[verdict]} ({reason}).")
    if (read := read_rows(card)) and verbose:
        ui.say()
        ui.table(READ_COLUMNS, read)
        ui.say(READ_NOTE)
    sources = ", ".join(f"{source} {count:,}" for source, count in card.sources.items())
    ui.say(f"{card.n_cases:,} {'case' if card.n_cases == 1 else 'cases'}: {sources}.")
    if card.repeats:
        ui.say(repeats_note(card))
    if card.left_out:
        ui.say(f"Left out: {'; '.join(left_out_lines(card.left_out))}.")
    if card.bundled:
        ui.say(NO_EVIDENCE)
    if read and not verbose:
        ui.say(f"{len(read)} earlier readings of these parts on real answers are not among these cases; --verbose lists them.")
    if is_kept:
        ui.say(f"The card: {ui.shown(folder)} (validity.md, validity.json)")
    else:
        ui.say(f"This card is not kept: {ui.shown(folder)} has one with people's labels.")
