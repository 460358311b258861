"""`medloop reward`: score answers, explain one score, list the parts of the reward."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from medloop.cli import reward_weights, ui
from medloop.cli.reward_detect import detect
from medloop.cli.reward_drift import drift
from medloop.cli.reward_fit import fit
from medloop.cli.reward_panel import panel
from medloop.cli.reward_validate import validate
from medloop.contracts import Missing, Reward, Sample, Score, Span
from medloop.errors import ConfigError, InputError
from medloop.knobs import load_config, split_pairs
from medloop.loop.scoring import given_parts, rules_text, score_answers
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.rulebook import reward_formula
from medloop.reward.score_file import FileSummary
from medloop.store.audit_trail import open_audit_trail
from medloop.store.files.answer_lines import Questions, read_samples
from medloop.store.files.artifacts import is_sealed
from medloop.store.files.atomic import atomic_write, require_writable

COLOURS = ("cyan", "green", "magenta", "blue", "yellow")


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Score answers with rules and models, and explain each score.")
    group.command("score")(score)
    group.command("explain")(explain)
    group.command("detect")(detect)
    group.command("rules")(rules)
    group.command("panel")(panel)
    group.command("validate")(validate)
    group.command("drift")(drift)
    group.command("fit")(fit)
    group.command("weights")(reward_weights.weights)
    app.add_typer(group, name="reward")


def score(
    file: Annotated[Path, typer.Argument(help="Answers: records, chats, question and answer, or output of 'medloop predict'.")],
    questions: ui.QuestionFiles = None,
    config: ui.RewardFile = None,
    set_: ui.SetPairs = None,
    with_: ui.RewardParts = None,
    store: Annotated[bool, typer.Option("--store", help="Also store the rewards in the database, encrypted.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File for the scores (default: NAME_scores.jsonl beside it; for a dataset in data/rl)."
        ),
    ] = None,
) -> None:
    """Score a file of answers: prints a summary, writes the value, reason and evidence of every part.

    A second run scores only what is new or was missing. Without '--with teacher' the rules carry the teacher's weight, and
    each line says so.

    Example:  medloop reward score answers.jsonl --config configs/reward.yaml --with teacher --output scores.jsonl
    """
    settings, mix = ui.settings(), _config(config, set_)
    beside = settings.workspace.rl if is_sealed(file.parent) else file.parent
    target = (output or beside / f"{file.stem}_scores.jsonl").expanduser().absolute()
    require_writable(target)
    given = given_parts(settings, split_pairs("--with", with_ or (), bare=True))
    with open_audit_trail(settings) as trail, ui.progress("Scoring") as bar:
        summary, conflicts = score_answers(
            settings, source=file, questions=questions or (), output=target, config=mix, given=given,
            store=trail.store if store else None, progress=bar.update,
        )  # fmt: skip
        trail.record("reward.score", target, answers=summary.answers, missing=summary.missing, conflicts=conflicts)
    for name, part in given.items():
        if why := getattr(part, "degraded", ""):
            missing = max(summary.parts[part].missing for part in summary.parts if part.partition(".")[0] == name)
            count = f"{missing} of {summary.answers} answers have no score"
            ui.say(f"Degraded: {name}: {why}. {count}; run the same command again to score them.")
    _show_summary(summary, mix)
    if conflicts:
        ui.say(f"The teacher and the rules disagree on {conflicts} answers: data/rl/teacher_conflicts.jsonl")
    earlier = f", {summary.already_there} of them earlier" if summary.already_there else ""
    ui.say(f"Scored {summary.answers} answers{earlier}: {ui.shown(target)}")


def explain(
    file: Annotated[Path | None, typer.Argument(help="File of answers, as for 'reward score'.")] = None,
    questions: ui.QuestionFiles = None,
    id: Annotated[str | None, typer.Option(help="Id of the answer in the file (default: the first).")] = None,
    question: Annotated[str | None, typer.Option(help="The question, instead of a file.")] = None,
    answer: Annotated[str | None, typer.Option(help="The answer of the assistant, with its <think> block.")] = None,
    config: ui.RewardFile = None,
    set_: ui.SetPairs = None,
    with_: ui.RewardParts = None,
) -> None:
    """Show one answer with its scores, their reasons and the words that each rule looked at.

    Example:  medloop reward explain --question "I have chest pain." --answer "Call an ambulance now."
    """
    sample = _sample(file, questions or [], id, question, answer)
    named = split_pairs("--with", with_ or (), bare=True)
    mix = build_mix(_config(config, set_), given_parts(ui.settings(), named) if named else None)
    (reward,) = mix.score([sample])
    _show_reward(sample, reward)


def rules(
    config: ui.RewardFile = None,
    set_: ui.SetPairs = None,
    with_: ui.RewardParts = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for the page (default: data/rl/reward_rules.md).")
    ] = None,
    json_: ui.AsJson = False,
) -> None:
    """List the parts of the reward with their weights and versions, and write a page that defines them.

    Where the teacher is a part, the page also has its modes, its rubric and its prompt templates with their versions.

    Example:  medloop reward rules --config configs/reward.yaml
    """
    given = given_parts(ui.settings(), split_pairs("--with", with_ or (), bare=True), load_models=False)
    mix = build_mix(_config(config, set_), given)
    target = (output or ui.settings().workspace.rl / "reward_rules.md").expanduser().absolute()
    atomic_write(target, rules_text(mix, given))
    rows = []
    for name, part in mix.config.parts.items():
        rule = mix.rules.get(name) or mix.given.get(name)
        penalty = rule.penalty if rule else part.weight < 0
        rows.append((name, f"{part.weight:+g}", "low" if penalty else "high", rule.version if rule else "declared absent"))
    if json_:
        parts = [{"part": row[0], "weight": float(row[1]), "good_is": row[2], "version": row[3]} for row in rows]
        ui.say_json({"version": mix.version, "parts": parts})
        return
    ui.table(("part", "weight", "good is", "version"), rows)
    ui.say(f"R = {reward_formula(mix)}   (version {mix.version})")
    ui.say(f"Definitions: {ui.shown(target)}")


def _config(file: Path | None, pairs: list[str] | None) -> MixConfig:
    return load_config(MixConfig, file=file, pairs=pairs or (), flags={})


def _sample(file: Path | None, questions: list[Path], id: str | None, question: str | None, answer: str | None) -> Sample:
    if file is None:
        if question is None or answer is None:
            raise ConfigError("There is nothing to explain", "Name a file, or give --question and --answer")
        return Sample(id="answer", question=question, answer=answer)
    if question is not None or answer is not None:
        raise ConfigError("Both a file and a question or an answer were given", "Give a file, or --question and --answer")
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
    """The question and the answer with the evidence in the colour of its rule, then each part."""
    console = ui.console()
    colours = {part.name: COLOURS[index % len(COLOURS)] for index, part in enumerate(reward.parts)}
    for where, text in (("question", sample.question), ("answer", sample.answer or "")):
        console.print(Text(f"{where}:", style="bold"))
        console.print(_marked(text, where, reward.parts, colours))
    rows = []
    for part in reward.parts:
        value = getattr(part, "value", None) if getattr(part, "applies", True) else None
        weight = reward.weights.get(part.name)
        words = ", ".join(dict.fromkeys(_words(sample, span) for span in getattr(part, "spans", ())))
        reason = f"{part.reason} (unsure: no verdict)" if getattr(part, "unsure", False) else part.reason
        cells = (_number(value), "–" if weight is None else f"{weight:+.3f}", reason, words)
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
    """The text of a span, shortened."""
    text = sample.question if span.where == "question" else sample.answer or ""
    words = " ".join(text[span.start : span.end].split())
    return f'"{words if len(words) <= 32 else words[:30] + "…"}"'
