"""What came of a record, and what a model came from: a graph of ids, hashes and counts. It never holds a text."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Text, Timestamp

NodeKind = Literal[
    "record", "records", "dataset", "file", "model", "evaluation", "gate", "version", "release", "rule", "criterion"
]  # fmt: skip
RecordKind = Literal["feedback", "preference", "correction", "trace", "erased"]


class LineageNode(Contract):
    """A record, or something made from records. `id` is the id of a record, or a hash; `detail` says more about its kind.

    `records` stands for all records of a graph that begins with a model or a release. `replaced`: another one has its path now.
    """

    id: Text
    kind: NodeKind
    label: Text
    detail: str = ""
    flags: tuple[Text, ...] = ()
    replaced: bool = False
    created: Timestamp | None = None


class LineageEdge(Contract):
    """`target` was made with `source` in a role: what it learnt from, or only what it was measured with.

    `records` is how many records pass along it; None where nobody counts them.
    """

    source: Text
    target: Text
    role: Text
    teaches: bool = True
    records: int | None = Field(None, ge=0)


class LineageGraph(Contract):
    """Everything that contains the subject, and everything that it was made from.

    `records` counts the distinct records that the subject learnt from. `truncated` counts the nodes that were left out of a
    large graph; the records are counted through them, too.
    """

    subject: LineageNode
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]
    records: int = Field(0, ge=0)
    truncated: int = Field(0, ge=0)


class TaughtRecord(Contract):
    """One record that a model learnt from: its id and kind, and the role of the person who sent it."""

    record_id: Text
    kind: RecordKind
    role: str = ""


class TaughtRecords(Contract):
    """A page of them; `next` is the `after` of the next page, None on the last one."""

    items: tuple[TaughtRecord, ...]
    next: str | None = None
