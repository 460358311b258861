"""`medloop data export`: a split in the shape that other tools read. Importing it again gives the same conversations."""

from pathlib import Path

from medloop.contracts import Record
from medloop.contracts.dataset import SPLIT_FILES, Split
from medloop.data.prepare.prepare import read_card
from medloop.data.sources import shapes
from medloop.errors import StoreError
from medloop.settings import Workspace
from medloop.store.files.artifacts import verify_artifact
from medloop.store.files.jsonl import read, write

WRITERS = {"sharegpt": shapes.to_sharegpt, "alpaca": shapes.to_alpaca}


def export(workspace: Workspace, *, split: Split, to: str, output: Path, replace: bool = False) -> int:
    """Write one split as JSONL; returns the number of rows. The prepared data is verified first."""
    read_card(workspace)
    if output.exists() and not replace:
        raise StoreError(f"{output} already exists", "Name another --output, or pass --replace")
    verify_artifact(workspace.processed)
    return write(output, (WRITERS[to](record) for record in read(workspace.processed / SPLIT_FILES[split], Record)))
