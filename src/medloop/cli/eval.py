"""`medloop eval`: compare models on held-out questions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts import EvalReport, ModelRef
from medloop.errors import ConfigError
from medloop.evaluate.predictions import DEFAULT_SPLITS, EvalConfig
from medloop.evaluate.report import cell, counts, headlines, judged_by, splits_of
from medloop.evaluate.report_issues import baseline_rows, metrics_of
from medloop.evaluate.side_by_side import Evaluation, file_name
from medloop.loop.evaluation import DEFAULT_RULES, enter_report, evaluate_again, evaluate_models, parse_examined, round_report
from medloop.loop.people import people_verdicts
from medloop.models import leave_out_bitsandbytes
from medloop.models.context_limits import trained_limits
from medloop.settings import Settings
from medloop.store.audit_trail import AuditTrail, actor, open_audit_trail
from medloop.store.files.atomic import require_writable
from medloop.store.records.gates import knows_report


def register(app: typer.Typer) -> None:
    app.command("eval")(evaluate)


def evaluate(
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BASE[+ADAPTER][,codebook=FILE|live]",
            help="Model (embedded:NAME, a folder, a GGUF file or a hub id), with the name or folder of an adapter if it has one, "
            "or URL#NAME; with a file of rules for its prompts, or with the live codebook and its guard, as users meet it; "
            "may be repeated. The first is the baseline.",
        ),
    ] = None,
    predictions: Annotated[
        list[Path] | None,
        typer.Option(help="Answers made elsewhere, as JSON lines with record_id and text; may be repeated.", metavar="FILE"),
    ] = None,
    split: Annotated[
        list[str] | None,
        typer.Option(metavar="SPLIT", help="dev, test, gold, red or train; may be repeated (default: dev, test, gold, red)."),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Questions per split, and cases per suite.")] = 100,
    rule: Annotated[
        list[str] | None,
        typer.Option(metavar="RULE", help="Rule, or module:object; may be repeated (default: chain, emergency, risk)."),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=FILE]",
            help="Suite, with the file of its cases if it needs one, or your own as module:object; may be repeated. "
            "With a suite and without --split, only the suites run.",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Folder under reports/eval (default: named after the models).")] = "",
    output: Annotated[Path | None, typer.Option(help="Markdown file to write instead; HTML and JSON are beside it.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of an answer.")] = 256,
    temperature: Annotated[float, typer.Option(min=0.0, help="Sampling temperature; 0 is greedy.")] = 0.0,
    top_k: ui.ContextPassages = None,
    max_prompt: ui.MaxPrompt = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts answered together.")] = 64,
    precision: Annotated[
        float | None,
        typer.Option(
            metavar="WIDTH",
            min=0.001,
            max=0.5,
            help="Stop asking when every mean of a whole split is known to within this (its 95% interval), for example 0.03; "
            "looked at after an eighth, a quarter and half of the questions, with wider intervals for that.",
        ),
    ] = None,
    all_pairs: Annotated[bool, typer.Option("--all-pairs", help="Compare each model with every other one.")] = False,
    against: Annotated[
        Path | None,
        typer.Option(metavar="REPORT", help="Earlier report for the trend of the issues (default: the one that is replaced)."),
    ] = None,
    round_number: Annotated[
        int | None,
        typer.Option(
            "--round",
            metavar="N",
            min=1,
            help="Write reports/rl_stage/eval_report_roundN.md; the trend is against the round before.",
        ),
    ] = None,
    again: Annotated[
        Path | None,
        typer.Option(
            metavar="REPORT",
            help="Repeat this evaluation from its stored answers, with what people have said about them since.",
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ask again although answers are stored (a URL may serve a new model).")
    ] = False,
    accept_untrusted: Annotated[
        bool,
        typer.Option("--accept-untrusted", help="Compare although people's labels do not support a rule; the report says so."),
    ] = False,
) -> None:
    """Let models answer held-out questions, score the answers with rules, and write a report with confidence intervals.

    Suites examine a model in other ways (triage, multiple choice, leaks); each is a split of the report.
    The prompt contains the context passages of its question as in RL training, the same for every model.
    Answers are stored in reports/eval/answers: whatever a model has answered once is not asked for again, in any report.

    Example:  medloop eval --model embedded:tiny --model embedded:tiny+sft --split gold --split red
    """
    settings = ui.settings()
    if again is not None:
        if model or predictions or suite or split or rule:
            raise ConfigError("--again repeats an earlier evaluation and takes no other models or questions", "Leave them out")
        return _again(settings, again, output)
    if not model and not predictions:
        raise ConfigError("Neither a model nor predictions were given", "Use --model embedded:tiny or --predictions FILE")
    if suite and not model:
        raise ConfigError("A suite asks a model, but none was given", "Add --model embedded:tiny")
    models, files = [parse_examined(spec) for spec in model or ()], predictions or []
    config = EvalConfig(
        splits=tuple(dict.fromkeys(split or (() if suite else DEFAULT_SPLITS))), n=n, max_new_tokens=max_new_tokens,
        temperature=temperature, limits=trained_limits(models, settings, top_k=top_k, max_prompt=max_prompt),
        batch_size=batch_size, seed=settings.seed, accept_untrusted=accept_untrusted, fresh=fresh, precision=precision,
        all_pairs=all_pairs,
    )  # fmt: skip
    if round_number is not None:
        output = output or round_report(settings, round_number)
        before = round_report(settings, round_number - 1).with_suffix(".json")
        against = against or (before if before.is_file() else None)
    title, markdown = _where(settings, name, output, models, files)
    require_writable(markdown)
    if not any(":" in name for name in (*(rule or ()), *(suite or ()))):  # module:object is somebody's own code
        leave_out_bitsandbytes()
    with open_audit_trail(settings) as trail, ui.progress("Answering", every=10) as bar:
        done = evaluate_models(
            settings, models=models, predictions=files, rules=tuple(rule or DEFAULT_RULES), suites=tuple(suite or ()),
            config=config, name=title, markdown=markdown, against=against,
            known=lambda report: knows_report(trail.store, report),
            progress=lambda label: lambda done, total: bar.update(done, total, label),
        )  # fmt: skip
        _record(trail, done)
    _show(done)
    for missing in (split for split in config.splits if not any(split in result.metrics for result in done.report.results)):
        ui.say(f"The split {missing} has no questions, so it is not in the report.")


def _again(settings: Settings, report: Path, output: Path | None) -> None:
    """The same evaluation with people's verdicts, in a report beside the earlier one."""
    markdown = _markdown(output) if output else report.expanduser().absolute().with_name(f"{report.stem}_people.md")
    require_writable(markdown)
    with open_audit_trail(settings) as trail:
        done = evaluate_again(settings, report, people=people_verdicts(trail.store, actor=actor()), markdown=markdown)
        _record(trail, done)
    _show(done)


def _record(trail: AuditTrail, done: Evaluation) -> None:
    trail.record("eval.report", done.markdown, report=done.report.content_id())
    enter_report(trail, done)


def _where(settings: Settings, name: str, output: Path | None, models: list[ModelRef], files: list[Path]) -> tuple[str, Path]:
    """Title and path of the report."""
    if output is not None:
        return name or output.stem, _markdown(output)
    title = name or "_vs_".join([*(ref.label for ref in models), *(path.stem for path in files)])
    folder = file_name(title)[:100]
    if not folder:
        raise ConfigError(f"--name: '{name}' has no letters or digits for a folder name", "Use letters and digits")
    return title, settings.workspace.reports / "eval" / folder / "eval_report.md"


def _markdown(output: Path) -> Path:
    if output.suffix != ".md":
        raise ConfigError(f"--output must end in .md, but is '{output.name}'", "Example: --output reports/eval/round1.md")
    return output.expanduser().absolute()


def _show(done: Evaluation) -> None:
    report = done.report
    splits = splits_of(report)
    for names in dict.fromkeys(tuple(metrics_of(report, split)) for split in splits):  # one table for the same columns
        alike = [split for split in splits if tuple(metrics_of(report, split)) == names]
        rows = [row for split in alike for row in _rows(report, split, names)]
        penalties = report.config["penalties"]
        ui.table(("split", "model", *(f"{name} {'↓' if name in penalties else '↑'}" for name in names), "n"), rows)
    for sentence in headlines(report):
        ui.say(sentence)
    ui.say(judged_by(report))
    if done.unchanged:
        ui.say("Data, models, rules and settings are the same as before, so the report is the one from then.")
    ui.say(f"Report: {ui.shown(done.markdown)} (and {done.html.name}, {done.json.name})")


def _rows(report: EvalReport, split: str, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for result in (result for result in report.results if split in result.metrics):
        intervals = result.metrics[split]
        alike = {(interval.n, interval.missing) for interval in intervals.values()}
        n = str(max(alike)[0]) if len(alike) == 1 and not max(alike)[1] else counts(result, split)
        yield split, result.label, *(cell(intervals.get(name)) for name in names), n
    for name, cells in baseline_rows(report, split):
        yield split, name, *cells, ""
