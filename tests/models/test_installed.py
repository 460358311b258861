"""Which encoders are taken: those that the settings name, else the best ones where they are installed; a fallback is declared."""

from pathlib import Path

import pytest

from medloop.models.installed import installed
from medloop.reward.relevance import RelevanceConfig, RelevanceModels, load_relevance
from medloop.settings import RewardSettings, Settings
from medloop.testing.models import tiny_model


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return Settings(home=tmp_path, offline=True)


def put_into_cache(hub: Path, name: str) -> Path:
    repo = hub / f"models--{name.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs/main").write_text("abc")
    return tiny_model(repo / "snapshots/abc")


def test_without_the_best_models_the_fallback_is_declared_with_its_cost(settings: Settings) -> None:
    models = RelevanceModels(RelevanceConfig(), settings)
    assert (models.encoder_name, models.cross_encoder_name) == ("embedded:minilm", None)
    assert any("English only" in note for note in models.notes) and any("cosine" in note for note in models.notes)


@pytest.mark.parametrize("place", ["cache", "workspace"])
def test_the_best_models_are_taken_where_they_are_installed(settings: Settings, tmp_path: Path, place: str) -> None:
    for name in ("BAAI/bge-m3", "BAAI/bge-reranker-v2-m3"):
        if place == "cache":
            put_into_cache(tmp_path / "hub", name)
        else:
            tiny_model(tmp_path / "models/full" / name.partition("/")[2])
    models = RelevanceModels(RelevanceConfig(), settings)
    assert (models.encoder_name, models.cross_encoder_name, models.notes) == ("BAAI/bge-m3", "BAAI/bge-reranker-v2-m3", ())
    parts = load_relevance(RelevanceConfig(), settings)
    assert parts["rel"].version.startswith("1(cross-encoder:BAAI/bge-reranker-v2-m3@")
    assert parts["faith"].version.startswith("1(embedding:BAAI/bge-m3@")


def test_a_copy_with_pickled_weights_only_does_not_count(settings: Settings, tmp_path: Path) -> None:
    folder = put_into_cache(tmp_path / "hub", "BAAI/bge-m3")
    for weights in folder.glob("*.safetensors"):
        weights.rename(weights.with_suffix(".bin"))
    assert installed("BAAI/bge-m3", settings) is None


def test_the_settings_win_over_what_is_installed(settings: Settings, tmp_path: Path) -> None:
    put_into_cache(tmp_path / "hub", "BAAI/bge-m3")
    mine = settings.model_copy(update={"reward": RewardSettings(encoder="models/full/mine", cross_encoder="org/cross")})
    models = RelevanceModels(RelevanceConfig(), mine)
    assert (models.encoder_name, models.cross_encoder_name) == ("models/full/mine", "org/cross")
    assert RelevanceModels(RelevanceConfig(encoder="embedded:minilm", cross_encoder=None), mine).cross_encoder_name is None
