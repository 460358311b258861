"""`medloop lineage`: which datasets, models and releases contain a record, and which records are behind a model."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from medloop.cli import ui
from medloop.contracts.lineage import LineageGraph, TaughtRecords
from medloop.store.db import open_store
from medloop.store.files.atomic import atomic_write
from medloop.store.lineage_graph import lineage_graph, taught_records
from medloop.web.lineage_view import GROUPS, answer, detail, label, page_file, role
from medloop.web.words import Translator


def register(app: typer.Typer) -> None:
    app.command("lineage")(lineage)


def lineage(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="ID|ADAPTER|RELEASE", help="Id of a record, or path, name or hash of a dataset, model or release."
        ),
    ],
    as_json: ui.AsJson = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the drawing and its tables as one HTML page.")] = None,
    language: Annotated[Literal["en", "zh"], typer.Option(help="Language of the HTML page.")] = "en",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Record ids on a page.")] = 20,
    after: Annotated[str, typer.Option(metavar="ID", help="Continue after this record id.")] = "",
) -> None:
    """Show what contains a record, or what a model, dataset or release was made from. Ids and counts only, never text.

    Example:  medloop lineage models/rl/round1 --html lineage.html
    """
    with open_store(ui.settings()) as store:
        graph = lineage_graph(store, subject)
        records = None if graph.subject.kind == "record" else taught_records(store, subject, after=after, limit=limit)
    if html is not None:
        atomic_write(html, page_file(graph, records, language))
    if as_json:
        ui.say_json({"graph": graph, "records": records})
        return
    _show(graph)
    if records is not None:
        _show_records(subject, records, limit)
    if html is not None:
        ui.say(f"Drawing: {ui.shown(html)}")


def _show(graph: LineageGraph) -> None:
    t = Translator("en")
    ui.say(answer(graph, t))
    nodes = sorted(graph.nodes, key=lambda node: GROUPS[node.kind])
    ui.table(("kind", "name", "what"), [(node.kind, label(node, t), detail(node, t)) for node in nodes])
    names = {node.id: label(node, t) for node in graph.nodes}
    rows = [
        (names[edge.source], names[edge.target], "" if edge.records is None else f"{edge.records:,}", role(edge.role, t))
        for edge in graph.edges
    ]  # fmt: skip
    if rows:
        ui.say("")
        ui.table(("from", "to", "records", "role"), rows)


def _show_records(subject: str, records: TaughtRecords, limit: int) -> None:
    if not records.items:
        return
    ui.say("")
    ui.table(("record", "kind", "sent by"), [(row.record_id, row.kind, row.role or "–") for row in records.items])
    if records.next is not None:
        more = f"lineage {shlex.quote(subject)} --limit {limit} --after {shlex.quote(records.next)}"
        ui.next_step(more, lead="More:")
