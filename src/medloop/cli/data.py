"""`medloop data`: import files, prepare them for training, build datasets from feedback."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import SecretStr

from medloop.cli import ui
from medloop.cli.data_print import say_scrubbed
from medloop.cli.langfuse import import_from_langfuse
from medloop.contracts import Source
from medloop.contracts.dataset import Split
from medloop.contracts.record_filter import FilterTree
from medloop.data.export import export as export_split
from medloop.data.export import export_feedback
from medloop.data.feedback.build import FeedbackConfig, write_preferences
from medloop.data.feedback.filter_records import count_fitting
from medloop.data.prepare.enough import too_small
from medloop.data.prepare.prepare import CARD, READABLE, PrepareConfig, read_card
from medloop.data.prepare.prepare import prepare as prepare_data
from medloop.data.prepare.split import SPLITS
from medloop.data.prompts import PROMPTS, make_prompts
from medloop.data.sources.import_files import ImportOptions, import_files, list_sources, remove_source
from medloop.data.sources.preview import Preview
from medloop.data.sources.preview import preview as preview_file
from medloop.data.sources.text import encoding_name
from medloop.errors import ConfigError
from medloop.knobs import load_config, split_pairs
from medloop.loop.feedback import build_from_feedback, rater_weights
from medloop.store.audit_trail import actor, open_audit_trail
from medloop.store.db import open_store
from medloop.store.records.gate_policies import policy_of

data_app = typer.Typer(no_args_is_help=True, help="Import, clean, split and describe data; build datasets from feedback.")


def register(app: typer.Typer) -> None:
    app.add_typer(data_app, name="data")


Format = Annotated[
    Literal["auto", "jsonl", "csv", "parquet"], typer.Option(help="File format; auto looks at the name and the first bytes.")
]
Encoding = Annotated[
    Literal["auto", "utf-8", "gb18030", "latin-1"],
    typer.Option(help="Text encoding; auto recognizes UTF-8, UTF-16 and GB18030."),
]
Mapping = Annotated[
    list[str] | None, typer.Option("--map", metavar="FIELD=COLUMN", help="Read a field from this column; may be repeated.")
]


@data_app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="JSONL, JSON array, CSV, TSV or Parquet; may be gzipped. Or the word langfuse.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the source; with several files, a prefix. Default: the name of the file.")
    ] = None,
    licence: Annotated[str, typer.Option(help="Licence of the data, for the data card.")] = "unknown",
    format: Format = "auto",
    encoding: Encoding = "auto",
    map_: Mapping = None,
    on_error: Annotated[
        Literal["stop", "skip"], typer.Option(help="Whether a bad line stops the import, or is skipped and listed.")
    ] = "stop",
    replace: Annotated[bool, typer.Option("--replace", help="Replace a source of this name that has other content.")] = False,
    since: Annotated[
        str, typer.Option(help="Of langfuse: read again from then on: a date, 30d or 12h (default: where the last import ended).")
    ] = "",
    consent: Annotated[
        list[str] | None, typer.Option(help="Of langfuse: what the scores may be used for; may be repeated (default: nothing).")
    ] = None,
    rater: Annotated[str, typer.Option(help="Of langfuse: the user who gave the scores (default: nobody).")] = "",
    json_: ui.AsJson = False,
) -> None:
    """Copy files into data/raw unchanged, and record their hash, licence and format; or read traces and scores from Langfuse.

    Known shapes, recognized by their column names: messages, ShareGPT, Alpaca, question/answer, prompt/response.
    'langfuse' reads what is new into the store, without identifiers; what people disliked goes to the review queue. Its
    address and keys are the settings langfuse.url, langfuse.public_key and langfuse.secret_key.

    Example:  medloop data import visits.csv --name visits --licence CC-BY-4.0 --map question=title

    Example:  medloop data import langfuse --since 30d --consent training
    """
    settings = ui.settings()
    if [str(file) for file in files] == ["langfuse"] and not Path("langfuse").exists():
        import_from_langfuse(settings, since=since, consent=consent or (), rater=rater, as_json=json_)
        return
    if since or consent or rater:
        raise ConfigError("--since, --consent and --rater are for an import from Langfuse", "medloop data import langfuse")
    options = ImportOptions(licence, format, encoding, split_pairs("--map", map_ or ()), skip_errors=on_error == "skip")
    with open_audit_trail(settings) as trail:
        imported = import_files(files, settings.workspace.raw, name=name, options=options, replace=replace)
        for source, _ in imported:
            trail.register("source", settings.workspace.raw / source.name, source)
    if json_:
        ui.say_json([{"outcome": outcome, **source.model_dump(mode="json")} for source, outcome in imported])
        return
    for source, outcome in imported:
        if outcome == "unchanged":
            ui.say(f"{source.name}: this file is already imported; nothing changed.")
            continue
        skipped = f", {source.rejected_rows:,} skipped (listed in rejected.jsonl)" if source.rejected_rows else ""
        ui.say(f"{source.name}: {outcome}, {source.rows:,} rows{skipped} ({_read_as(source)}, licence {source.licence}).")
    ui.next_step("data prepare")


def _read_as(source: Source | Preview) -> str:
    return f"{source.format}, {encoding_name(source.encoding)}, {source.shape}"


@data_app.command("preview")
def preview(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL, JSON array, CSV, TSV or Parquet; may be gzipped.")],
    n: Annotated[int, typer.Option("--n", min=0, help="Number of conversations to show.")] = 3,
    format: Format = "auto",
    encoding: Encoding = "auto",
    map_: Mapping = None,
    json_: ui.AsJson = False,
) -> None:
    """Show what an import of a file would read: shape, columns, languages, problems, first rows. Writes nothing.

    Example:  medloop data preview visits.csv --map question=title
    """
    options = ImportOptions(format=format, encoding=encoding, mapping=split_pairs("--map", map_ or ()))
    seen = preview_file(file, options, count=n)
    if json_:
        ui.say_json(seen)
        return
    ui.say(f"{file}: {seen.rows:,} rows can be read, {seen.problems:,} cannot ({_read_as(seen)}).")
    columns = ", ".join(field if field == name else f"{field} from {name}" for field, name in seen.columns.items())
    ui.say(f"Columns: {columns}" + (f"; not read: {', '.join(map(ui.printable, seen.ignored))}" if seen.ignored else ""))
    ui.say(f"Languages: {_shares(dict(seen.languages), sum(seen.languages.values())) or 'none'}")
    for line, problem in seen.named_problems:
        ui.say(f"  line {line}: {problem}")
    for number, messages in enumerate(seen.examples, 1):
        ui.say(f"\n{number}.")
        for role, text in messages:
            words = " ".join(text.split())
            ui.say(f"  {role}: {ui.printable(words if len(words) <= 300 else words[:299] + '…')}")
    ui.say()
    skip = " --on-error skip" if seen.problems else ""
    given = "".join(f" --map {shlex.quote(pair)}" for pair in map_ or ())
    given += f" --encoding {encoding}" if encoding != "auto" else ""
    ui.next_step(f"data import {shlex.quote(str(file))}{given}{skip}")


@data_app.command("remove")
def remove(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Name of the source, from 'medloop data list'.")],
    force: Annotated[bool, typer.Option("--force", help="Remove it even if the prepared data was made from it.")] = False,
) -> None:
    """Remove an imported source from the workspace; the prepared data stays as it is. The audit log records it.

    Example:  medloop data remove visits
    """
    settings = ui.settings()
    with open_audit_trail(settings) as trail:
        removed = remove_source(settings.workspace, source, force=force)
        trail.record("data.remove", settings.workspace.raw / source, sha256=removed.sha256, rows=removed.rows, force=force)
    ui.say(f"{source} is removed ({removed.rows:,} rows).")


@data_app.command("list")
def list_(json_: ui.AsJson = False) -> None:
    """Show the imported sources and the prepared files.

    Example:  medloop data list
    """
    workspace = ui.settings().workspace
    sources = list_sources(workspace.raw)
    if json_:
        prepared = read_card(workspace) if (workspace.processed / CARD).is_file() else None
        ui.say_json({"sources": sources, "prepared": prepared and {"id": prepared.content_id(), "files": prepared.files}})
        return
    if not sources:
        ui.next_step("data import FILE --name NAME", "No sources yet. Import some with:")
        return
    rows = [(s.name, f"{s.rows:,}", f"{s.rejected_rows:,}", s.sha256[7:19], s.licence, _read_as(s)) for s in sources]
    ui.table(("source", "rows", "rejected", "sha256", "licence", "read as"), rows)
    if (workspace.processed / CARD).is_file():
        card = read_card(workspace)
        files = ", ".join(f"{split} {card.files[split].rows:,}" for split in SPLITS)
        ui.say(f"\nPrepared ({card.content_id()[:19]}): {files}.")
        ui.next_step("data card", "Read its card:")


@data_app.command("prepare")
def prepare(
    source: Annotated[list[str] | None, typer.Option(help="Prepare only this source; may be repeated (default: all).")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed (default: the setting 'seed').")] = None,
    dev: Annotated[float | None, typer.Option(help="Share of the rows for dev (default: 0.1).")] = None,
    test: Annotated[float | None, typer.Option(help="Share of the rows for test (default: 0.1).")] = None,
    gold: Annotated[int | None, typer.Option(help="Rows in the gold set (default: 200).")] = None,
    red: Annotated[int | None, typer.Option(help="Rows in the red-team set (default: 200).")] = None,
    scrub: Annotated[
        bool | None,
        typer.Option("--scrub/--no-scrub", help="Remove personal identifiers and leave out doubtful rows (default: scrub)."),
    ] = None,
    config: ui.ConfigFile = None,
    set_: ui.SetPairs = None,
) -> None:
    """Clean, scrub, deduplicate, tag, split and decontaminate the sources, and describe the result in data/processed.

    Rows that may still identify a person after scrubbing are left out and stored in data/processed.quarantine.jsonl, which only
    you can read: mend them in your file and import it again. For data without real persons use --no-scrub: it is about twice as
    fast and leaves no row out.

    Example:  medloop data prepare --gold 100 --red 100 --set text_threshold=0.9
    """
    settings = ui.settings()
    flags = {"dev": dev, "test": test, "gold": gold, "red": red, "scrub": scrub}
    chosen = load_config(PrepareConfig, file=config, pairs=set_ or (), flags=flags)
    with open_audit_trail(settings) as trail:
        policy, seed = policy_of(trail.store).config, settings.seed if seed is None else seed
        card = prepare_data(settings.workspace, chosen, seed=seed, names=source or (), progress=ui.progress)
        trail.register("dataset", settings.workspace.processed, card)
    for split, entry in card.files.items():
        ui.say(f"{entry.rows:>9,}  {entry.path:<16}{_shares(card.languages[split], entry.rows)}")
    dropped = sum(sum(counts.values()) for counts in card.drops.values())
    removed = sum(counts.get("contaminated", 0) for counts in card.drops.values())
    ui.say(f"{dropped:>9,}  dropped ({removed:,} of them near-copies of held-out questions; 0 left in train)")
    say_scrubbed(card, settings)
    for sentence in too_small(card, chosen, policy):
        ui.say(sentence)
    ui.say(f"Read the card: {ui.shown(settings.workspace.processed / 'DATA_CARD.md')}")
    ui.next_step("train sft")


@data_app.command("prompts")
def prompts(
    n: Annotated[int, typer.Option("--n", help="Number of prompts.")] = 500,
    high_risk: Annotated[float, typer.Option(help="Minimum share of high-risk prompts.")] = 0.4,
    seed: Annotated[int | None, typer.Option(help="Random seed (default: the setting 'seed').")] = None,
) -> None:
    """Draw RL prompts from the train set, balanced by language and stratum, into data/rl/training_prompts.jsonl.

    Example:  medloop data prompts --n 300 --high-risk 0.5
    """
    settings = ui.settings()
    with open_audit_trail(settings) as trail:
        card = make_prompts(settings.workspace, count=n, high_risk=high_risk, seed=settings.seed if seed is None else seed)
        trail.record("data.prompts", settings.workspace.rl / PROMPTS, prompts=n)
        trail.register_file("prompts", settings.workspace.rl / PROMPTS, card["file"]["sha256"], card)
    strata = ", ".join(f"{name} {count:,}" for name, count in card["strata"].items())
    ui.say(f"{n:,} prompts, {card['high_risk_share']:.0%} high-risk ({card['red_team']:,} red-team): {strata}.")
    ui.say(f"Written to {ui.shown(settings.workspace.rl / PROMPTS)}")
    ui.next_step("train irs --adapter NAME", "Next, with the adapter to start from:")


@data_app.command("export")
def export(
    to: Annotated[Literal["sharegpt", "alpaca"], typer.Option(help="Format of the rows.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="JSONL file to write.")],
    split: Annotated[Split, typer.Option(help="Split to export.")] = "train",
    feedback: Annotated[
        str, typer.Option(metavar="NAME", help="Export the answers of this dataset of 'data build' instead of the prepared data.")
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a split as ShareGPT or Alpaca rows for other tools; importing it again gives the same conversations.

    Example:  medloop data export --to sharegpt --split train --output train_sharegpt.jsonl

    Example:  medloop data export --feedback week46 --to alpaca --output liked_and_corrected.jsonl
    """
    settings, output = ui.settings(), output.expanduser().absolute()
    if feedback:
        with open_audit_trail(settings) as trail:
            rows = export_feedback(trail.store, feedback, split=split, to=to, output=output, actor=actor(), replace=replace)
            trail.record("data.export", output, rows=rows, dataset=feedback)
    else:
        rows = export_split(settings.workspace, split=split, to=to, output=output, replace=replace)
    ui.say(f"{rows:,} rows in {ui.shown(output.absolute())}")


@data_app.command("build")
def build(
    name: Annotated[str | None, typer.Option(help="Name of the dataset, under data/feedback (default: feedback).")] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of the split (default: the setting 'seed').")] = None,
    test_share: Annotated[float | None, typer.Option(help="Share of the questions to hold out (default: 0.2).")] = None,
    liked_answers: Annotated[
        bool | None,
        typer.Option(
            "--liked-answers/--no-liked-answers", help="Keep answers that most raters liked for SFT (default: keep them)."
        ),
    ] = None,
    filter_: Annotated[
        Path | None, typer.Option("--filter", metavar="FILE", help="Only records that fit this tree (see 'data filter').")
    ] = None,
    config: ui.ConfigFile = None,
    set_: ui.SetPairs = None,
) -> None:
    """Build training data from the feedback in the store: pairs, thumbs, expert answers, rules, red-team questions.

    It uses the newest version of each record that allows training, with personal identifiers removed. The same records give
    the same files, byte for byte.

    Example:  medloop data build --name week46
    """
    settings = ui.settings()
    flags: dict[str, Any] = {"name": name, "test_share": test_share, "liked_answers": liked_answers}
    flags["filter"] = read_filter(filter_) if filter_ else None
    chosen = load_config(FeedbackConfig, file=config, pairs=set_ or (), flags=flags)
    with open_store(settings) as store:
        seed = settings.seed if seed is None else seed
        built = build_from_feedback(store, chosen, seed=seed, actor=actor(), progress=ui.progress)
    for file, entry in built.card.files.items():
        ui.say(f"{entry.rows:>9,}  {file}")
    used = sum(fates.get("used", 0) for fates in built.card.records.values())
    seen = sum(sum(fates.values()) for fates in built.card.records.values())
    ui.say(f"From {used:,} of {seen:,} records, {built.new_records:,} of them new.")
    if built.quarantined:
        ui.next_step("quarantine list", f"{built.quarantined:,} records may identify a person and wait for review:")
    if built.foreign_rows:
        ui.say(f"{built.foreign_rows:,} rows from other sources stay in data/preferences.")
    ui.say(f"Dataset {built.sha256[:19]}…  Read the card: {ui.shown(built.folder / 'DATA_CARD.md')}")


@data_app.command("filter")
def filter_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON with the tree: all, any, none, field.")],
    json_: ui.AsJson = False,
) -> None:
    """Count the feedback that fits a filter. 'data build --filter FILE' builds a dataset from it alone.

    Fields: kind, stars, liked, critical, reward, axis.NAME, stratum, language, rater, role, version, agent, day, consent.

    Example:  medloop data filter urgent-zh.yaml
    """
    tree = read_filter(file)
    with open_audit_trail(ui.settings()) as trail:
        counts = count_fitting(trail.store, tree, actor=actor())
    if json_:
        ui.say_json(asdict(counts))
        return
    ui.say(f"{counts.fitting:,} of {counts.records:,} records fit.")
    for title, numbers in (("kind", counts.kinds), ("language", counts.languages), ("stratum", counts.strata)):
        ui.say(f"  by {title}: " + (", ".join(f"{name} {n:,}" for name, n in sorted(numbers.items())) or "none"))
    if counts.fitting:
        ui.next_step(f"data build --name filtered --filter {shlex.quote(str(file))}")


def read_filter(file: Path) -> FilterTree:
    return load_config(FilterTree, file=file, flags={})


@data_app.command("prepare-preferences")
def prepare_preferences(
    feedback_db: Annotated[str, typer.Option(metavar="URL", help="Store to read: sqlite:///FILE or postgresql://…")],
    output: Annotated[Path, typer.Option(metavar="FILE.jsonl", help="File to write; replaced if it exists.")],
    seed: Annotated[int | None, typer.Option(help="Random seed of the split (default: the setting 'seed').")] = None,
    test_share: Annotated[float | None, typer.Option(help="Share of the questions to hold out (default: 0.2).")] = None,
    set_: ui.SetPairs = None,
) -> None:
    """Write the preference pairs of any feedback store to one file; each row says whether it is train or test.

    The store is opened with the key of this workspace; name another one with 'medloop --set database.key_file=FILE'.

    Example:  medloop data prepare-preferences --feedback-db postgresql://user@host/medloop --output preferences.jsonl
    """
    settings = ui.settings()
    chosen = load_config(FeedbackConfig, file=None, pairs=set_ or (), flags={"test_share": test_share})
    database = settings.database.model_copy(update={"url": SecretStr(feedback_db)})
    with open_store(settings.model_copy(update={"database": database})) as store:
        seed, output = settings.seed if seed is None else seed, output.expanduser().absolute()
        weights = rater_weights(store)
        train, test = write_preferences(store, output, chosen, seed=seed, actor=actor(), weights=weights, progress=ui.progress)
    ui.say(f"{train + test:,} pairs in {ui.shown(output)}: {train:,} train, {test:,} test.")


@data_app.command("card")
def card(
    json_: Annotated[bool, typer.Option("--json", help="Print card.json instead of the readable card.")] = False,
) -> None:
    """Print the data card of the prepared data: what it is, where it comes from and what was left out.

    Example:  medloop data card | less
    """
    workspace = ui.settings().workspace
    read_card(workspace)
    ui.say((workspace.processed / (CARD if json_ else READABLE)).read_text(encoding="utf-8").rstrip())


def _shares(languages: dict[Any, int], rows: int) -> str:
    return ", ".join(f"{language} {count / rows:.0%}" for language, count in languages.items() if count)
