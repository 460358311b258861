"""`medloop data`: from files somebody has to data a model may learn from."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from medloop.cli import ui
from medloop.contracts import DatasetCard
from medloop.data.feedback.build import FeedbackConfig, write_preferences
from medloop.data.prepare.prepare import CARD, READABLE, PrepareConfig, quarantine_file, read_card
from medloop.data.prepare.prepare import prepare as run
from medloop.data.prepare.split import SPLITS
from medloop.data.prompts import PROMPTS, make_prompts
from medloop.data.sources.import_files import ImportOptions, import_files, list_sources
from medloop.knobs import build as read_knobs
from medloop.knobs import split_pairs
from medloop.loop.feedback import build_from_feedback
from medloop.store.audit_trail import actor, open_audit_trail
from medloop.store.db import open_store

data_app = typer.Typer(no_args_is_help=True, help="Import, clean, split and describe data; draw RL prompts; export.")


def register(app: typer.Typer) -> None:
    app.add_typer(data_app, name="data")


class Format(enum.StrEnum):
    auto = "auto"
    jsonl = "jsonl"
    csv = "csv"
    parquet = "parquet"


class Encoding(enum.StrEnum):
    auto = "auto"
    utf8 = "utf-8"
    gb18030 = "gb18030"


class OnError(enum.StrEnum):
    stop = "stop"
    skip = "skip"


class Split(enum.StrEnum):
    train = "train"
    dev = "dev"
    test = "test"
    gold = "gold"
    red = "red"


class Shape(enum.StrEnum):
    sharegpt = "sharegpt"
    alpaca = "alpaca"


@data_app.command("import")
def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="JSONL, JSON array, CSV, TSV or Parquet; may be gzipped.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the source (else the file's name; with several files a prefix).")
    ] = None,
    licence: Annotated[str, typer.Option(help="Licence of the data, as the card should say it.")] = "unknown",
    format: Annotated[Format, typer.Option(help="File format; auto looks at the name and the first bytes.")] = Format.auto,
    encoding: Annotated[
        Encoding, typer.Option(help="Text encoding; auto tells UTF-8, UTF-16 and GB18030 apart.")
    ] = Encoding.auto,
    map_: Annotated[
        list[str] | None, typer.Option("--map", metavar="FIELD=COLUMN", help="Read a field from this column; repeatable.")
    ] = None,
    on_error: Annotated[OnError, typer.Option(help="A bad line stops the import, or is skipped and listed.")] = OnError.stop,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a source of this name that holds something else.")] = False,
) -> None:
    """Copy files into data/raw, unchanged, with hash, licence and how to read them.

    Known shapes: messages, ShareGPT, Alpaca, question/answer, prompt/response; found by their column names.

    Example:  medloop data import visits.csv --name visits --licence CC-BY-4.0 --map question=title
    """
    settings = ui.settings()
    options = ImportOptions(licence, format.value, encoding.value, split_pairs("--map", map_ or ()), on_error is OnError.skip)
    with open_audit_trail(settings) as trail:
        done = import_files(files, settings.workspace.raw, name=name, options=options, replace=replace)
        for source, _ in done:
            trail.enter("source", settings.workspace.raw / source.name, source)
    for source, outcome in done:
        if outcome == "unchanged":
            ui.say(f"{source.name}: the same bytes are already imported, nothing changed.")
            continue
        skipped = f", {source.rejected_rows:,} skipped (listed in rejected.jsonl)" if source.rejected_rows else ""
        how = f"{source.format}, {source.encoding.removesuffix('-sig')}, {source.shape}"
        ui.say(f"{source.name}: {outcome}, {source.rows:,} rows{skipped} ({how}, licence {source.licence}).")


@data_app.command("list")
def list_() -> None:
    """Show the imported sources and the prepared files.

    Example:  medloop data list
    """
    workspace = ui.settings().workspace
    sources = list_sources(workspace.raw)
    if not sources:
        ui.say("No sources yet. Import some with: medloop data import FILE --name NAME")
        return
    rows = []
    for source in sources:
        how = f"{source.format}, {source.encoding.removesuffix('-sig')}, {source.shape}"
        rows.append((source.name, f"{source.rows:,}", f"{source.rejected_rows:,}", source.sha256[7:19], source.licence, how))
    ui.table(("source", "rows", "rejected", "sha256", "licence", "read as"), rows)
    if (workspace.processed / CARD).is_file():
        card = read_card(workspace)
        files = ", ".join(f"{split} {card.files[split].rows:,}" for split in SPLITS)
        ui.say(f"\nPrepared ({card.content_id()[:19]}): {files}. See: medloop data card")


@data_app.command("prepare")
def prepare(
    source: Annotated[list[str] | None, typer.Option(help="Only this source; may be repeated (all by default).")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every draw (the workspace's seed by default).")] = None,
    dev: Annotated[float | None, typer.Option(help="Share of rows for dev  [default: 0.1]")] = None,
    test: Annotated[float | None, typer.Option(help="Share of rows for test  [default: 0.1]")] = None,
    gold: Annotated[int | None, typer.Option(help="Rows of the gold set  [default: 200]")] = None,
    red: Annotated[int | None, typer.Option(help="Rows of the red-team set  [default: 200]")] = None,
    scrub: Annotated[
        bool | None,
        typer.Option("--scrub/--no-scrub", help="Take identifiers of persons out, and leave rows in doubt out  [default: scrub]"),
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="Settings of the preparation.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting, for example text_threshold=0.9.")
    ] = None,
) -> None:
    """Clean, scrub, drop duplicates, tag, split, decontaminate and describe: data/processed, whole or not at all.

    Rows that may name somebody after scrubbing are left out and kept in data/processed.quarantine.jsonl, for you alone to read.
    Data without persons (made up, public) is prepared about twice as fast with --no-scrub, and loses no row to doubt.

    Example:  medloop data prepare --gold 100 --red 100 --set text_threshold=0.9
    """
    from medloop.knobs import build

    settings = ui.settings()
    flags = {"dev": dev, "test": test, "gold": gold, "red": red, "scrub": scrub}
    chosen = build(PrepareConfig, file=config, pairs=set_ or (), flags=flags)
    with open_audit_trail(settings) as trail:
        card = run(
            settings.workspace, chosen, seed=settings.seed if seed is None else seed, names=source or (), progress=ui.progress
        )
        trail.enter("dataset", settings.workspace.processed, card)
    for split, entry in card.files.items():
        ui.say(f"{entry.rows:>9,}  {entry.path:<16}{_shares(card.languages[split], entry.rows)}")
    dropped = sum(sum(counts.values()) for counts in card.drops.values())
    removed = sum(counts.get("contaminated", 0) for counts in card.drops.values())
    ui.say(f"{dropped:>9,}  dropped ({removed:,} of them near-copies of held-out questions; 0 left in train)")
    _say_scrubbed(card)
    ui.say(f"Read the card: {ui.shown(settings.workspace.processed / 'DATA_CARD.md')}")


def _say_scrubbed(card: DatasetCard) -> None:

    if card.scrub is None:
        ui.say("Identifiers of persons were not looked for (--no-scrub).")
        return
    said = f"Identifiers taken out of {card.scrub['rows_changed']:,} rows"
    if held := card.scrub["rows_held"]:
        said += f"; {held:,} may still name somebody and were left out: {ui.shown(quarantine_file(ui.settings().workspace))}"
    ui.say(f"{said}.")


@data_app.command("prompts")
def prompts(
    n: Annotated[int, typer.Option("--n", help="How many prompts.")] = 500,
    high_risk: Annotated[float, typer.Option(help="Least share of high-risk prompts.")] = 0.4,
    seed: Annotated[int | None, typer.Option(help="Seed of the draw (the workspace's seed by default).")] = None,
) -> None:
    """Draw RL prompts from the train set into data/rl/training_prompts.jsonl, by language and stratum.

    Example:  medloop data prompts --n 300 --high-risk 0.5
    """
    settings = ui.settings()
    with open_audit_trail(settings) as trail:
        card = make_prompts(settings.workspace, count=n, high_risk=high_risk, seed=settings.seed if seed is None else seed)
        trail.note("data.prompts", settings.workspace.rl / PROMPTS, prompts=n)
    strata = ", ".join(f"{name} {count:,}" for name, count in card["strata"].items())
    ui.say(f"{n:,} prompts, {card['high_risk_share']:.0%} high-risk ({card['red_team']:,} red-team): {strata}.")
    ui.say(f"Written to {ui.shown(settings.workspace.rl / PROMPTS)}")


@data_app.command("export")
def export(
    to: Annotated[Shape, typer.Option(help="Shape of the rows.")],
    output: Annotated[Path, typer.Option(metavar="FILE", help="JSONL file to write.")],
    split: Annotated[Split, typer.Option(help="Which split.")] = Split.train,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a split as ShareGPT or Alpaca rows for other tools; importing it again gives the same conversations.

    Example:  medloop data export --to sharegpt --split train --output train_sharegpt.jsonl
    """
    from medloop.data.export import export as run

    rows = run(ui.settings().workspace, split=split.value, to=to.value, output=output, replace=replace)
    ui.say(f"{rows:,} rows in {ui.shown(output.absolute())}")


@data_app.command("build")
def build(
    name: Annotated[str | None, typer.Option(help="Name of the dataset, under data/feedback  [default: feedback]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the split (the workspace's seed by default).")] = None,
    test_share: Annotated[float | None, typer.Option(help="Share of the questions held out  [default: 0.2]")] = None,
    liked_answers: Annotated[
        bool | None, typer.Option("--liked-answers", help="Also learn from answers that most raters liked.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE.yaml", help="Settings of the build.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting, for example max_pairs=4.")
    ] = None,
) -> None:
    """Make training data of all feedback in the store: pairs, thumbs, experts' answers, rules, red-team questions.

    Only records that allow training, newest versions, identifiers taken out. The same records give the same bytes.

    Example:  medloop data build --name week46 --liked-answers
    """
    settings = ui.settings()
    flags = {"name": name, "test_share": test_share, "liked_answers": liked_answers}
    chosen = read_knobs(FeedbackConfig, file=config, pairs=set_ or (), flags=flags)
    with open_store(settings) as store:
        seed = settings.seed if seed is None else seed
        built = build_from_feedback(store, chosen, seed=seed, actor=actor(), progress=ui.progress)
    for file, entry in built.card.files.items():
        ui.say(f"{entry.rows:>9,}  {file}")
    used = sum(fates.get("used", 0) for fates in built.card.records.values())
    seen = sum(sum(fates.values()) for fates in built.card.records.values())
    ui.say(f"From {used:,} of {seen:,} records, {built.new:,} of them new.")
    if built.held:
        ui.say(f"{built.held:,} may name somebody and wait for you: medloop quarantine list")
    if built.kept:
        ui.say(f"{built.kept:,} rows of other origin stay in data/preferences.")
    ui.say(f"Dataset {built.sha256[:19]}…  Read the card: {ui.shown(built.folder / 'DATA_CARD.md')}")


@data_app.command("prepare-preferences")
def prepare_preferences(
    feedback_db: Annotated[str, typer.Option(metavar="URL", help="The store to read: sqlite:///FILE or postgresql://….")],
    output: Annotated[Path, typer.Option(metavar="FILE.jsonl", help="Where the pairs go; replaced if it is there.")],
    seed: Annotated[int | None, typer.Option(help="Seed of the split (the workspace's seed by default).")] = None,
    test_share: Annotated[float | None, typer.Option(help="Share of the questions held out  [default: 0.2]")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One setting of 'medloop data build'.")
    ] = None,
) -> None:
    """Write the preference pairs of any feedback store as one file; each row says whether it is train or test.

    The store is opened with this workspace's key; for another one use 'medloop --set database.key_file=FILE'.

    Example:  medloop data prepare-preferences --feedback-db postgresql://user@host/medloop --output preferences.jsonl
    """
    settings = ui.settings()
    chosen = read_knobs(FeedbackConfig, file=None, pairs=set_ or (), flags={"test_share": test_share})
    other = settings.model_copy(update={"database": settings.database.model_copy(update={"url": SecretStr(feedback_db)})})
    with open_store(other) as store:
        seed = settings.seed if seed is None else seed
        output = output.expanduser().absolute()
        train, test = write_preferences(store, output, chosen, seed=seed, actor=actor(), progress=ui.progress)
    ui.say(f"{train + test:,} pairs in {ui.shown(output)}: {train:,} train, {test:,} test.")


@data_app.command("card")
def card(
    json_: Annotated[bool, typer.Option("--json", help="Print card.json instead of the readable card.")] = False,
) -> None:
    """Print the card of the prepared data: what it is, where it came from, what was left out.

    Example:  medloop data card | less
    """
    workspace = ui.settings().workspace
    read_card(workspace)
    ui.say((workspace.processed / (CARD if json_ else READABLE)).read_text(encoding="utf-8").rstrip())


def _shares(languages: dict[Any, int], rows: int) -> str:
    return ", ".join(f"{language} {count / rows:.0%}" for language, count in languages.items() if count)
