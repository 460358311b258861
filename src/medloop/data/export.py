"""`medloop data export`: a split in the shape that other tools read. Importing it again gives the same conversations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from medloop.contracts import Record
from medloop.contracts.dataset import SPLIT_FILES, Split
from medloop.data.feedback.build import WAIT_S
from medloop.data.feedback.write import ANSWERS
from medloop.data.prepare.prepare import read_card
from medloop.data.sources import shapes
from medloop.errors import ConfigError, InputError, StoreError
from medloop.settings import Workspace
from medloop.store.db import Store
from medloop.store.files.artifacts import file_sha256, verify_artifact
from medloop.store.files.jsonl import read, write
from medloop.store.records import erasing, lineage

WRITERS: dict[str, Callable[[Record], dict[str, Any]]] = {"sharegpt": shapes.to_sharegpt, "alpaca": shapes.to_alpaca}


def export(workspace: Workspace, *, split: Split, to: str, output: Path, replace: bool = False) -> int:
    """Write one split as JSONL; returns the number of rows. The prepared data is verified first."""
    read_card(workspace)
    _check_free(output, replace)
    verify_artifact(workspace.processed)
    return write(output, (WRITERS[to](record) for record in read(workspace.processed / SPLIT_FILES[split], Record)))


def export_feedback(
    store: Store, name: str, *, split: Split, to: str, output: Path, actor: str, replace: bool = False
) -> int:  # fmt: skip
    """Write the experts' and liked answers of a feedback dataset. An erasure names the file, because it knows what is in it."""
    folder = store.settings.workspace.home / "data/feedback" / name
    if Path(name).name != name or not folder.is_dir():
        raise InputError(f"There is no feedback dataset '{name[:64]}'", "Build one with: medloop data build --name NAME")
    if split not in ANSWERS:
        raise ConfigError(f"--split {split}: a feedback dataset has no such split", f"Use {' or '.join(ANSWERS)}")
    _check_free(output, replace)
    with erasing.erasure_lock(store, wait_s=WAIT_S):  # what is erased now would stay in the file
        verify_artifact(folder)
        records = list(read(folder / ANSWERS[split], Record))
        if not records:
            raise InputError(
                f"{name} has no answers in its {split} split", "Collect corrections or likes with consent to training"
            )
        rows = write(output, (WRITERS[to](record) for record in records))
        with store.write() as conn:
            record_ids = {record_id for record in records for record_id in record.meta.get("records", ())}
            lineage.add_records(conn, file_sha256(output), record_ids)
            lineage.flag_artifact(conn, file_sha256(output), "exported", str(output), actor=actor)
    return rows


def _check_free(output: Path, replace: bool) -> None:
    if output.exists() and not replace:
        raise StoreError(f"{output} already exists", "Name another --output, or pass --replace")
