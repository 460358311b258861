"""The leak suite, composed: the scrubber finds identifiers, and the adapters' cards say which files they were trained on."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from medloop.contracts import ModelRef, TrainingCard
from medloop.contracts.dataset import SPLIT_FILES
from medloop.evaluate.suites.leak import Leak
from medloop.models.find import adapter_folder
from medloop.privacy.phi.find import find
from medloop.settings import Settings
from medloop.store.files.atomic import file_sha256


def leak_suite(settings: Settings, models: Sequence[ModelRef], file: Path | None) -> Leak:
    """Over the cases of a file, or else over what the adapters were trained on."""
    return Leak(file, find_phi, () if file else training_files(settings, models))


def find_phi(text: str) -> list[tuple[str, str]]:
    """Kind and text of every identifier."""
    return [(span.kind, text[span.start : span.end]) for span in find(text)]


def training_files(settings: Settings, models: Sequence[ModelRef]) -> tuple[Path, ...]:
    """The training files of the adapters that are still where the run read them, with the same content."""
    return tuple(dict.fromkeys(path for ref in models if ref.adapter for path in _trained_on(settings, ref.adapter)))


def _trained_on(settings: Settings, adapter: str) -> Iterator[Path]:
    card_file = adapter_folder(adapter, settings) / "card.json"
    if not card_file.is_file():
        return
    card = TrainingCard.from_json(card_file.read_text(encoding="utf-8"))
    named = [settings.find(value) for value in card.config.values() if isinstance(value, str)]
    for path in (*named, settings.workspace.processed / SPLIT_FILES["train"]):
        if path.is_file() and file_sha256(path) == card.inputs.get("train"):
            yield path
