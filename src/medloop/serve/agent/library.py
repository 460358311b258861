"""The documents of a workspace: one sealed folder each, with its card and its pages.

    library = Library(settings.home)
    library.add(read, actor="user:sam", identifiers="refuse")   # the same content twice is one document
    library.documents(); library.pages(document_id); library.remove(document_id)

The original file is not kept: what can be cited is the text. Nothing here holds vectors or words; an index is made from it.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from medloop.contracts.knowledge import DocumentPage, KnowledgeDocument
from medloop.errors import InputError, MedloopError
from medloop.lexicon.language import detect_language
from medloop.serve.agent.documents import ReadDocument
from medloop.serve.agent.identifiers import count_kinds, personal_spans, replace_spans
from medloop.store.files import jsonl
from medloop.store.files.artifacts import MANIFEST, folder_sha256, new_artifact, remove_artifact, sweep, verify_artifact

CARD, PAGES = "card.json", "pages.jsonl"
Identifiers = Literal["refuse", "scrub", "keep"]


class PersonalDataError(InputError):
    """A document names a person; nothing of it was kept."""


@dataclass(frozen=True)
class StoredDocument:
    """A document with the hash of its folder, which changes when its text does (by an erasure)."""

    card: KnowledgeDocument
    sha256: str


@dataclass(frozen=True)
class Added:
    document: KnowledgeDocument
    is_new: bool
    identifiers: str = ""  # what was replaced or kept, by kind


class Library:
    def __init__(self, home: Path) -> None:
        self.folder = home / "knowledge/documents"

    def add(
        self, read: ReadDocument, *, actor: str, identifiers: Identifiers = "refuse",
        on_page: Callable[[int, int], None] = lambda done, total: None,
    ) -> Added:  # fmt: skip
        """Keep a document. PersonalDataError where it holds identifiers of a person and nobody said what to do about them."""
        document_id = f"doc_{read.source_sha256[7:23]}"
        target = self.folder / document_id
        if target.is_dir():
            return Added(self.card(document_id), is_new=False)
        pages, kinds = self._checked(read, identifiers, on_page)
        state: Literal["none", "scrubbed", "kept"] = "none" if not kinds else "scrubbed" if identifiers == "scrub" else "kept"
        title, source = read.title, read.source
        if state == "scrubbed":
            title, source = (replace_spans(text, personal_spans(text)) for text in (title, source))
        card = KnowledgeDocument(
            document_id=document_id, title=title, kind=read.kind, source=source, source_sha256=read.source_sha256,
            language=detect_language("\n".join(page.text for page in pages[:3])), pages=len(pages),
            characters=sum(len(page.text) for page in pages), identifiers=state, added_by=actor,
        )  # fmt: skip
        with new_artifact(target) as folder:
            (folder / CARD).write_text(card.canonical_json(), encoding="utf-8")
            jsonl.write(folder / PAGES, [page.model_dump() for page in pages])
        return Added(card, is_new=True, identifiers=kinds)

    def documents(self) -> list[StoredDocument]:
        """All documents by the time they were added; a folder that is damaged is an IntegrityError."""
        if not self.folder.is_dir():
            return []
        sweep(self.folder)
        names = sorted(path.name for path in self.folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        stored = [StoredDocument(self.card(name), folder_sha256(self.folder / name)) for name in names]
        return sorted(stored, key=lambda document: (document.card.timestamp, document.card.document_id))

    def state(self) -> tuple[tuple[str, int], ...]:
        """Changes when a document comes, goes or is rewritten; cheap enough to ask before each question."""
        if not self.folder.is_dir():
            return ()
        with os.scandir(self.folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
        return tuple((name, _changed(self.folder / name / MANIFEST)) for name in names)

    def card(self, document_id: str) -> KnowledgeDocument:
        path = self.folder / document_id / CARD
        return KnowledgeDocument.model_validate_json(path.read_text(encoding="utf-8"))

    def pages(self, document_id: str) -> tuple[DocumentPage, ...]:
        """The pages, after the folder was checked against its manifest."""
        verify_artifact(self.folder / document_id)
        return tuple(jsonl.read(self.folder / document_id / PAGES, DocumentPage))

    def find(self, name: str) -> KnowledgeDocument:
        """The one document whose id begins with this; InputError where there is none or more than one."""
        cards = [stored.card for stored in self.documents() if len(name) >= 4 and stored.card.document_id.startswith(name)]
        if len(cards) != 1:
            what = "There is no document" if not cards else f"{len(cards)} documents begin with"
            raise InputError(f"{what} '{name[:64]}'", "'medloop knowledge list' shows all documents with their ids")
        return cards[0]

    def remove(self, document_id: str) -> None:
        remove_artifact(self.folder / document_id)

    def damaged(self) -> list[tuple[str, str]]:
        """Documents whose bytes are not what was written, each with the reason."""
        problems = []
        folders = sorted(self.folder.iterdir()) if self.folder.is_dir() else []
        for path in (path for path in folders if path.is_dir() and not path.name.startswith(".")):
            try:
                self.pages(path.name)
                self.card(path.name)
            except (MedloopError, ValueError) as error:
                problems.append((path.name, str(error) if isinstance(error, MedloopError) else "its card cannot be read"))
        return problems

    def _checked(
        self, read: ReadDocument, identifiers: Identifiers, on_page: Callable[[int, int], None]
    ) -> tuple[Sequence[DocumentPage], str]:
        spans = []
        for done, page in enumerate(read.pages, start=1):
            spans.append(personal_spans(page.text))
            on_page(done, len(read.pages))
        named = [personal_spans(text) for text in (read.title, read.source)]
        kinds = count_kinds([span for found in (*spans, *named) for span in found])
        if not kinds or identifiers == "keep":
            return read.pages, kinds
        if identifiers == "refuse":
            numbers = [str(page.number) for page, found in zip(read.pages, spans, strict=True) if found and page.number]
            where = (
                " in its title or file name"
                if any(named) and not numbers
                else f" on page {', '.join(numbers[:8])}{' …' if len(numbers) > 8 else ''}"
                if numbers
                else ""
            )
            shown = replace_spans(read.source, named[1])
            raise PersonalDataError(
                f"{shown} holds identifiers of a person ({kinds}){where}",
                "Remove them, or add it with --identifiers scrub, or with --identifiers keep if no patient is meant",
            )
        cleaned = [
            DocumentPage(number=page.number, text=replace_spans(page.text, found))
            for page, found in zip(read.pages, spans, strict=True)
        ]
        return cleaned, kinds


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
