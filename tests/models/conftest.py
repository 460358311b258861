"""One small random model for all tests of this folder, and settings that stay on this machine."""

from pathlib import Path

import pytest

from medloop.settings import Settings
from medloop.testing.models import tiny_model


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, device="cpu", threads=1, offline=True)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "base")
