"""The folder of a training run, and the rules about names: the same run continues, another run of that name is refused.

`jobs/train_sft-NAME/` holds `config.json` (identity and start), `metrics.jsonl` and `checkpoints/`. The identity of a run
is its config (with what else decides its loss), the hash of its base model and the hashes of its input files: two runs with
the same identity have the same result, so a finished run is not repeated and a killed one is resumed. No torch until a
checkpoint is opened.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medloop.contracts import TrainingCard, utc_now
from medloop.errors import ConfigError, IntegrityError, explain_os_errors
from medloop.store.files import jsonl
from medloop.store.files.artifacts import check_target, sweep, verify_artifact
from medloop.store.files.atomic import atomic_write, require_writable
from medloop.store.files.lock import locked_file

if TYPE_CHECKING:
    from medloop.train.runs.checkpoint import Checkpoint
LOCK_WAIT_S = 0.5  # a page that looks whether a run lives holds its lock for a moment
LATER = ("least_steps", "replay_data", "memory_gb", "overlap")  # runs from before these were settings keep their identity


@dataclass(frozen=True)
class TrainingRun:
    """`target` is the folder of the result; `identity` has the keys config, base_sha256 and inputs.

    Every checkpoint and every line of metrics asks for its path first, and `guard` raises when this process may no longer write.
    """

    folder: Path
    target: Path
    identity: dict[str, Any]
    guard: Callable[[], object] = lambda: None

    @property
    def checkpoints(self) -> Path:
        self.guard()
        return self.folder / "checkpoints"

    @property
    def metrics(self) -> Path:
        self.guard()
        return self.folder / "metrics.jsonl"

    def finished(self) -> TrainingCard | None:
        """The card of the result if it is of this run; ConfigError if it is of another run."""
        if not (self.target / "card.json").is_file():
            return None
        verify_artifact(self.target)
        card = TrainingCard.from_json((self.target / "card.json").read_text(encoding="utf-8"))
        asked = (card.memory or {}).get("asked") or {}  # before the memory decided
        identity = {"config": {**card.config, **asked}, "base_sha256": card.base_sha256, "inputs": card.inputs}
        self._refuse_other(identity, f"{self.target} is from another run")
        return card

    def check_unfinished(self) -> None:
        """A run that was stopped may only be resumed with the settings it was started with."""
        earlier = self._earlier_start()
        if earlier is not None and self.checkpoints.is_dir():
            self._refuse_other(earlier["identity"], f"{self.folder} holds an unfinished run")

    def check_writable(self) -> None:
        """What writing the run's files or its result would raise at the end of a long run."""
        require_writable(self.folder / "config.json")
        check_target(self.target, replace=True)
        require_writable(self.target / "card.json")

    def resumable(self) -> Checkpoint | None:
        """The newest checkpoint of this run, if it was started before."""
        from medloop.train.runs.checkpoint import load_newest  # torch

        earlier = self._earlier_start()
        return load_newest(self.checkpoints) if earlier is not None and self._is_own(earlier["identity"]) else None

    def start(self, *, restart: bool = False) -> tuple[datetime, Checkpoint | None]:
        """When the run started, and the checkpoint to resume from; without one, or with `restart`, the folder is emptied."""
        earlier = self._earlier_start()
        checkpoint = None if restart else self.resumable()
        if earlier is not None and checkpoint is not None:
            # What was logged after the checkpoint will be logged again.
            jsonl.write(self.metrics, [row for row in jsonl.read(self.metrics) if row["iter"] <= checkpoint.step])
            return datetime.fromisoformat(earlier["started"]), checkpoint
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        self.metrics.unlink(missing_ok=True)
        now = utc_now()
        atomic_write(
            self.folder / "config.json", json.dumps({"identity": self.identity, "started": now.isoformat()}, indent=2) + "\n"
        )
        return now, None

    def end(self) -> None:
        """The result is in place: delete the checkpoints. Other files of a method there stay."""
        for checkpoint in self.checkpoints.glob("step-*"):
            shutil.rmtree(checkpoint, ignore_errors=True)
        with suppress(OSError):
            self.checkpoints.rmdir()  # only when empty

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Two runs of one name must not write into one folder. The lock ends with the process, however it ends."""
        with explain_os_errors(self.folder, writing=True):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.target.parent.mkdir(parents=True, exist_ok=True)
        with locked_file(self.folder, wait_s=LOCK_WAIT_S):
            sweep(self.target.parent)
            yield

    def _earlier_start(self) -> dict[str, Any] | None:
        """Identity and time of the last start in this folder."""
        file = self.folder / "config.json"
        if not file.is_file():
            return None
        try:
            start = json.loads(file.read_text(encoding="utf-8"))
            return start if {"identity", "started"} <= start.keys() else None
        except (ValueError, AttributeError):
            raise IntegrityError(f"{file} cannot be read", "Remove that folder to start again") from None

    def _refuse_other(self, theirs: dict[str, Any], where: str) -> None:
        if not self._is_own(theirs):
            raise ConfigError(f"{where} ({_differences(theirs, self.identity)})", "Use another --name, or add --replace")

    def _is_own(self, theirs: dict[str, Any]) -> bool:
        return {**theirs, "config": without_later(theirs["config"])} == self.identity


def without_later(values: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run, less those of `LATER` that it does not use."""
    return {name: value for name, value in values.items() if value or name not in LATER}


def _differences(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    """Which settings differ, in words, without hashes."""
    parts = []
    for key in sorted(theirs["config"].keys() | ours["config"].keys()):
        old, new = theirs["config"].get(key), ours["config"].get(key)
        if old != new:
            parts.append(f"{key} {old}, now {new}")
    if theirs["base_sha256"] != ours["base_sha256"]:
        parts.append("other base weights")
    for role in sorted(theirs["inputs"].keys() | ours["inputs"].keys()):
        if theirs["inputs"].get(role) != ours["inputs"].get(role):
            parts.append(f"other {role} data")
    return ", ".join(parts)
