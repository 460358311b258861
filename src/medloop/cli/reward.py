"""`medloop reward`: score answers, look at one of them, list the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from medloop.cli import reward_weights, ui
from medloop.cli.reward_panel import panel
from medloop.contracts import Missing, Reward, Sample, Score, Span
from medloop.errors import ConfigError, InputError
from medloop.knobs import load_config
from medloop.loop.scoring import given_parts, score_answers
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.rulebook import formula, rulebook
from medloop.reward.score_file import FileSummary
from medloop.store.audit_trail import open_audit_trail
from medloop.store.files.answer_lines import Questions, read_samples
from medloop.store.files.atomic import atomic_write

Config = Annotated[Path | None, typer.Option(metavar="FILE", help="Weights, bounds and versions, as in configs/reward.yaml.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting of the mix; may be repeated.")]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="PART[=SOURCE]",
        help="Hand in a given part of the mix: teacher[=configs/teacher.yaml], model=models/reward/NAME, "
        "rel, faith or conc[=configs/dw.yaml], or your own as NAME=module:object; may be repeated.",
    ),
]  # fmt: skip
COLOURS = ("cyan", "green", "magenta", "blue", "yellow")


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Score answers by rules and teacher, and say why.")
    group.command("score")(score)
    group.command("explain")(explain)
    group.command("rules")(rules)
    group.command("panel")(panel)
    group.command("weights")(reward_weights.weights)
    app.add_typer(group, name="reward")


def score(
    file: Annotated[Path, typer.Argument(help="Answers: records, chats, question and answer, or what 'medloop predict' wrote.")],
    questions: ui.QuestionFiles = None,
    config: Config = None,
    set_: Set = None,
    with_: With = None,
    store: Annotated[bool, typer.Option("--store", help="Keep the rewards in the workspace's store too, encrypted.")] = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the breakdown goes (default: NAME_scores.jsonl beside the input).")
    ] = None,
) -> None:
    """Score a file of answers: a summary here, value, reason and places of every part in the output.

    A second run scores only what is new or was missing. Without a teacher its weight is carried by the rules, and each line
    says so; '--with teacher' asks it, within its budget.

    Example:  medloop reward score answers.jsonl --config configs/reward.yaml --with teacher --output scores.jsonl
    """
    settings, mix = ui.settings(), _config(config, set_)
    target = (output or file.parent / f"{file.stem}_scores.jsonl").expanduser().absolute()
    given = given_parts(settings, sources(with_))
    with open_audit_trail(settings) as trail, ui.progress("Scoring") as bar:
        summary, conflicts = score_answers(
            settings, source=file, questions=questions or (), output=target, config=mix, given=given,
            store=trail.store if store else None, progress=bar.update,
        )  # fmt: skip
        trail.note("reward.score", target, answers=summary.answers, missing=summary.missing, conflicts=conflicts)
    _show_summary(summary, mix)
    for part in given.values():
        if degraded := getattr(part, "degraded", ""):
            ui.say(f"Degraded: {part.name}: {degraded}. Run the same command again to score what is missing.")
    if conflicts:
        ui.say(f"Teacher and rules disagree on {conflicts} answers: data/rl/teacher_conflicts.jsonl")
    kept = f", {summary.already_there} of them before" if summary.already_there else ""
    ui.say(f"Scored {summary.answers} answers{kept}: {ui.shown(target)}")


def explain(
    file: Annotated[Path | None, typer.Argument(help="File of answers, as for 'reward score'.")] = None,
    questions: ui.QuestionFiles = None,
    id: Annotated[str | None, typer.Option(help="Which answer of the file (default: the first).")] = None,
    question: Annotated[str | None, typer.Option(help="What the patient asks, instead of a file.")] = None,
    answer: Annotated[str | None, typer.Option(help="What the assistant says, with its <think>.")] = None,
    config: Config = None,
    set_: Set = None,
    with_: With = None,
) -> None:
    """Show one answer with its scores, their reasons, and the words each rule looked at.

    Example:  medloop reward explain --question "I have chest pain." --answer "Call an ambulance now."
    """
    sample = _sample(file, questions or [], id, question, answer)
    named = sources(with_)
    mix = build_mix(_config(config, set_), given_parts(ui.settings(), named) if named else None)
    (reward,) = mix.score([sample])
    _show_reward(sample, reward)


def rules(
    config: Config = None,
    set_: Set = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the page goes (default: data/rl/reward_rules.md of the workspace).")
    ] = None,
) -> None:
    """List the parts of the reward with weight and version, and write the page that defines them.

    Example:  medloop reward rules --config configs/reward.yaml
    """
    mix = build_mix(_config(config, set_))
    target = (output or ui.settings().workspace.rl / "reward_rules.md").expanduser().absolute()
    atomic_write(target, rulebook(mix))
    rows = []
    for name, part in mix.config.parts.items():
        found = mix.rules.get(name) or mix.given.get(name)
        low = found.penalty if found else part.weight < 0
        rows.append((name, f"{part.weight:+g}", "low" if low else "high", found.version if found else "declared absent"))
    ui.table(("part", "weight", "good is", "version"), rows)
    ui.say(f"R = {formula(mix)}   (version {mix.version})")
    ui.say(f"Definitions: {ui.shown(target)}")


def _config(file: Path | None, pairs: list[str] | None) -> MixConfig:

    return load_config(MixConfig, file=file, pairs=pairs or (), flags={})


def sources(with_: list[str] | None) -> dict[str, str]:
    """`teacher`, `model=models/reward/rm` ... as a mapping; a part without a source takes its default."""
    return {name.strip(): source.strip() for name, _, source in (text.partition("=") for text in with_ or ())}


def _sample(file: Path | None, questions: list[Path], id: str | None, question: str | None, answer: str | None) -> Sample:
    if file is None:
        if question is None or answer is None:
            raise ConfigError("There is nothing to explain", "Name a file, or give --question and --answer")
        return Sample(id="answer", question=question, answer=answer)
    if question is not None or answer is not None:
        raise ConfigError(f"Both {file} and a question or answer were given", "Give a file, or --question and --answer")
    samples = read_samples(file, Questions(questions))
    sample = next((sample for sample in samples if id is None or sample.id == id), None)
    if sample is None:
        raise InputError(f"{file} has no answer with the id '{id}'", "Check the id")
    return sample


def _show_summary(summary: FileSummary, mix: MixConfig) -> None:
    rows: list[tuple[str | Text, ...]] = []
    for name, part in summary.parts.items():
        counts = (str(part.scored), str(part.does_not_apply), str(part.missing))
        rows.append((name, f"{mix.parts[name].weight:+g}", _number(part.mean), *counts))
    total = ("reward", "", _number(summary.mean), str(summary.answers - summary.missing), "0", str(summary.missing))
    rows.append(tuple(Text(cell, style="bold") for cell in total))
    ui.table(("part", "weight", "mean", "scored", "does not apply", "missing"), rows)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _show_reward(sample: Sample, reward: Reward) -> None:
    """Question and answer with the looked-at words in the colour of their rule, then each part."""
    console = ui.console()
    colours = {part.name: COLOURS[at % len(COLOURS)] for at, part in enumerate(reward.parts)}
    for where, text in (("question", sample.question), ("answer", sample.answer or "")):
        console.print(Text(f"{where}:", style="bold"))
        console.print(_marked(text, where, reward.parts, colours))
    rows = []
    for part in reward.parts:
        value = getattr(part, "value", None) if getattr(part, "applies", True) else None
        weight = reward.weights.get(part.name)
        words = ", ".join(dict.fromkeys(_words(sample, span) for span in getattr(part, "spans", ())))
        cells = (_number(value), "–" if weight is None else f"{weight:+.3f}", part.reason, words)
        rows.append((Text(part.name, style=colours[part.name]), *cells))
    ui.table(("part", "value", "weight", "reason", "words"), rows)
    left_out = f" ({reward.reason})" if reward.reason else ""
    ui.say(f"reward {_number(reward.value)}{left_out}, version {reward.version}")


def _marked(text: str, where: str, parts: tuple[Score | Missing, ...], colours: dict[str, str]) -> Text:

    marked = Text(text)
    for part in parts:
        for span in getattr(part, "spans", ()):
            if span.where == where:
                marked.stylize(f"bold {colours[part.name]} underline", span.start, span.end)
    return marked


def _words(sample: Sample, span: Span) -> str:
    """What a span covers, shortened: a whole chain need not be read twice."""
    text = sample.question if span.where == "question" else sample.answer or ""
    said = " ".join(text[span.start : span.end].split())
    return f'"{said if len(said) <= 32 else said[:30] + "…"}"'
