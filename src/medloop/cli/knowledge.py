"""`medloop knowledge`: the documents that the assistant may cite: add, list, search, check, remove."""

from pathlib import Path
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.errors import InputError, ResultError
from medloop.loop.knowledge import KnowledgeSearch, postgres_store, vector_note
from medloop.serve.agent.documents import read_file
from medloop.serve.agent.library import Added, Identifiers, Library
from medloop.settings import Settings
from medloop.store.audit_trail import AuditTrail, actor, open_audit_trail
from medloop.store.db import Store

knowledge_app = typer.Typer(no_args_is_help=True, help="Documents that the assistant may cite: add, list, search, check, remove.")

DocumentId = Annotated[str, typer.Argument(metavar="DOCUMENT", help="Id of the document, or how it begins.")]
SHOWN = 300  # characters of a passage on the terminal


def register(app: typer.Typer) -> None:
    app.add_typer(knowledge_app, name="knowledge")


@knowledge_app.command("add")
def add(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="PDF, text, Markdown, or JSON lines with title and text.")],
    identifiers: Annotated[
        Identifiers,
        typer.Option(help="Identifiers of a person in a document: refuse it, scrub them, or keep them (recorded)."),
    ] = "refuse",
) -> None:
    """Add documents and bring the index up to date. The same content twice is one document; run it again after an interruption.

    A file that cannot be read is named with the reason, and the others are added.

    Example:  medloop knowledge add guideline.pdf leaflets.jsonl
    """
    settings, problems = ui.settings(), 0
    with open_audit_trail(settings) as trail:
        for path in files:
            try:
                _add_file(trail, path, identifiers)
            except InputError as error:
                problems += 1
                typer.echo(f"Not added: {error}", err=True)
    _say_index(settings)
    if problems:
        raise InputError(f"{problems} of {len(files)} files were not added", "The reasons stand above")
    ui.next_step('knowledge search "QUESTION"')


def _add_file(trail: AuditTrail, path: Path, identifiers: Identifiers) -> None:
    library, refused, known, new = Library(trail.store.settings.home), 0, 0, 0
    with ui.progress(f"{path.name}: pages") as bar:
        for read in read_file(path, lambda done, total: bar.update(done, total)):
            try:
                added = library.add(read, actor=actor(), identifiers=identifiers)
            except InputError as error:  # one document of many
                if read.kind != "jsonl":
                    raise
                refused += 1
                bar.say(f"Not added: {error}")
                continue
            bar.update(bar.done + (read.kind == "jsonl"))
            new, known = new + added.is_new, known + (not added.is_new)
            if added.is_new:
                _record(trail, library, added)
                bar.say(_line(added, read.empty_pages))
    if known:
        ui.say(f"{path.name}: already there: {known}.")
    if refused:
        raise InputError(f"{path.name}: {refused} of {refused + known + new} documents were not added", "The reasons stand above")


def _record(trail: AuditTrail, library: Library, added: Added) -> None:
    card = added.document
    folder = library.folder / card.document_id
    trail.record("knowledge.add", folder, source_sha256=card.source_sha256, pages=card.pages, identifiers=card.identifiers)


def _line(added: Added, empty_pages: int) -> str:
    card = added.document
    notes = [f"{card.pages} pages" if card.kind == "pdf" else f"{card.characters:,} characters"]
    notes += [f"{empty_pages} of them without text"] if empty_pages else []
    notes += [f"identifiers {card.identifiers}: {added.identifiers}"] if added.identifiers else []
    return f"Added {card.document_id}: {ui.printable(card.title)} ({', '.join(notes)})"


def _say_index(settings: Settings) -> None:
    with postgres_store(settings) as store:
        with ui.progress("Index: documents") as bar:
            index = KnowledgeSearch(settings, lambda done, total: bar.update(done, total), store, tidy=True).index()
        if index is None:
            ui.say("There are no documents.")
            return
        ui.say(f"Index: {len(index.cards)} documents, {len(index.chunks):,} passages, {index.backend}.")
        _say_note(store)


def _say_note(store: Store | None) -> None:
    if note := vector_note(store):
        ui.say(note)


@knowledge_app.command("list")
def list_(as_json: ui.AsJson = False) -> None:
    """List the documents, oldest first.

    Example:  medloop knowledge list --json
    """
    settings = ui.settings()
    documents = Library(settings.home).documents()
    if as_json:
        ui.say_json([{**stored.card.model_dump(mode="json"), "sha256": stored.sha256} for stored in documents])
        return
    if not documents:
        ui.say("There are no documents.")
        ui.next_step("knowledge add FILE", "Add some:")
        return
    rows = [
        (card.document_id, card.kind, card.language, str(card.pages), card.identifiers, f"{card.timestamp:%Y-%m-%d}", card.title)
        for card in (stored.card for stored in documents)
    ]
    ui.table(("document", "kind", "language", "pages", "identifiers", "added", "title"), rows)
    with postgres_store(settings) as store:
        _say_note(store)


@knowledge_app.command("search")
def search(
    question: Annotated[str, typer.Argument(help="A question in Chinese or English.")],
    count: Annotated[int, typer.Option(min=1, max=20, help="Most passages to show.")] = 5,
    as_json: ui.AsJson = False,
) -> None:
    """Show the passages that fit a question, each with page and characters; or say that it is not in the documents.

    Example:  medloop knowledge search "Does dantrolene help in heat stroke?"
    """
    settings = ui.settings()
    with postgres_store(settings) as store:
        result = KnowledgeSearch(settings, store=store).examine(question, count=count)
    if result is None:
        raise InputError("There are no documents", "Add some with 'medloop knowledge add FILE'")
    if as_json:
        ui.say_json({"fit": result.fit, "threshold": result.threshold, **result.found.model_dump(mode="json")})
        return
    if not result.found.passages:
        ui.say(f"Not in the documents (fit {result.fit:.2f}, needed {result.threshold:.2f}).")
    for number, passage in enumerate(result.found.passages, start=1):
        page = f", page {passage.page}" if passage.page else ""
        ui.say(f"{number}. {ui.printable(passage.title)}{page}, characters {passage.start} to {passage.end} ({passage.document})")
        text = ui.printable(" ".join(passage.text.split()))
        ui.say(f"   {text[:SHOWN]}{'…' if len(text) > SHOWN else ''}")


@knowledge_app.command("remove")
def remove(document: DocumentId) -> None:
    """Remove a document with everything that was made from it. The index is built again without it.

    Example:  medloop knowledge remove doc_5f2c
    """
    settings = ui.settings()
    library = Library(settings.home)
    card = library.find(document)
    with open_audit_trail(settings) as trail:
        library.remove(card.document_id)
        trail.record("knowledge.remove", library.folder / card.document_id, source_sha256=card.source_sha256)
    ui.say(f"Removed {card.document_id}. Answers that cited it keep their citation; backups keep it until they are replaced.")
    _say_index(settings)


@knowledge_app.command("check")
def check(as_json: ui.AsJson = False) -> None:
    """Check every document against its hashes, make what the index lacks, and say what searches it.

    Vectors in a PostgreSQL database are read and compared with their hashes, too; damaged ones are made again.

    Example:  medloop knowledge check
    """
    settings = ui.settings()
    if damaged := Library(settings.home).damaged():
        if as_json:
            ui.say_json({"damaged": [{"document": name, "reason": reason} for name, reason in damaged]})
        for name, reason in damaged if not as_json else []:
            ui.say(f"{name}: {reason}")
        raise ResultError(
            f"{len(damaged)} documents are damaged", "Remove each with 'medloop knowledge remove DOCUMENT' and add its file again"
        )
    with postgres_store(settings) as store:
        with ui.progress("Index: documents") as bar:
            engine = KnowledgeSearch(settings, lambda done, total: bar.update(done, total), store, tidy=True)
            index, repaired = engine.index(), engine.repair()
        note = vector_note(store)
    facts = {
        "documents": len(index.cards) if index else 0, "passages": len(index.chunks) if index else 0,
        "search": index.backend if index else "none", "index": index.hash if index else None, "repaired": repaired,
        "note": note, "damaged": [],
    }  # fmt: skip
    if as_json:
        ui.say_json(facts)
        return
    ui.say(f"{facts['documents']} documents, {facts['passages']:,} passages, {facts['search']}. All hashes are right.")
    if repaired:
        ui.say(f"Vectors of {repaired} documents in the database were damaged and were made again.")
    if note:
        ui.say(note)
