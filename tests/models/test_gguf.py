"""A GGUF file as a base model: what is no GGUF, of another version or damaged is said in a sentence."""

import struct
from pathlib import Path

import pytest

from medloop.contracts import ModelRef
from medloop.errors import ModelError
from medloop.models.find import resolve
from medloop.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04 a zip", "is not a GGUF file"),
        (b"GG", "is not a GGUF file"),
        (b"GGUF" + struct.pack("<I", 1) + b"\0" * 16, "has version 1 of GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 3, 9, 9) + b"cut off here", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(settings: Settings, tmp_path: Path, content: bytes, message: str) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        resolve(ModelRef(base=str(tmp_path / "model.gguf")), settings)


def test_a_file_that_is_not_there_is_said_without_asking_the_hub(settings: Settings) -> None:
    with pytest.raises(ModelError, match=r"There is no file models/x\.gguf"):
        resolve(ModelRef(base="models/x.gguf"), settings)
