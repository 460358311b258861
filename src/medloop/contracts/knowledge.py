"""What the assistant may look up: documents with their pages, and the pieces of them that are searched.

A page keeps its text as it was read, so that characters `start` to `end` of it are what a citation points at.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text, Timestamp, utc_now

DocumentKind = Literal["pdf", "txt", "md", "jsonl"]


class DocumentPage(Contract):
    """The text of one page. `number` counts from 1; None: the document has no pages, such as a text file."""

    number: int | None = Field(None, ge=1)
    text: str


class KnowledgeDocument(Contract):
    """A document in the workspace. Its id is made of the hash of what was added, so that adding it twice changes nothing."""

    document_id: Text
    title: Text
    kind: DocumentKind
    source: Text = Field(description="Name of the file it came from, without its folder; for a line of a JSONL file with its id.")
    source_sha256: Hash = Field(description="Of the file's bytes, or of the line's text.")
    language: Text
    pages: int = Field(ge=1)
    characters: int = Field(ge=1)
    identifiers: Literal["none", "scrubbed", "kept"] = "none"
    added_by: Text
    timestamp: Timestamp = Field(default_factory=utc_now)


class Chunk(Contract):
    """A piece of a page that is searched: its own characters, and the headings it stands under."""

    document: Text
    page_index: int = Field(ge=0, description="Which page of the document, from 0.")
    page: int | None = None
    start: int = Field(ge=0)
    end: int = Field(ge=1)
    headings: tuple[str, ...] = ()
    text: Text
