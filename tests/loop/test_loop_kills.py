"""`medloop loop run` killed with SIGKILL at random moments, from the data to the experiment: the same artifacts, nothing twice."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from killed_loop import start_loop

from medloop.data.prepare.prepare import PrepareConfig, prepare
from medloop.data.sources.import_files import ImportOptions, import_files
from medloop.deploy.canary import load_canaries
from medloop.embedded.corpus import generate
from medloop.loop.workflow import progress_of
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings, resolve
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.files import jsonl
from medloop.store.files.artifacts import file_sha256
from medloop.store.records import crud, experiments, registry
from medloop.store.records.cycles import cycle_events
from medloop.store.records.routes import routes
from medloop.testing.feedback import make_correction, make_preference
from medloop.testing.served_double import ServerDouble

KILLS = int(os.environ.get("LOOP_KILLS", "50"))
CYCLE = {
    "train": [{"stage": "SFT", "settings": {"max_steps": 3, "save_every": 1, "dev_rows": 4, "max_length": 192}}],
    "prompts": 8,
    "evaluate": {"splits": ["red"], "n": 2, "max_new_tokens": 16, "resamples": 100},
    "experiment": {"share": 1.0, "plan": {"window_hours": 0}},
}


def new_feedback(settings: Settings, numbers: range) -> None:
    with open_store(settings) as store:
        for n in numbers:
            bad, good = f"Run {n} miles.", f"Rest {n} days and see a doctor."
            crud.add(store, [make_preference(n, good, bad, "a"), make_correction(n, bad, good)], actor="test")


def point_to(home: Path, double: ServerDouble) -> None:
    (home / "medloop.yaml").write_text(
        yaml.safe_dump({"threads": 1, "deploy": {"replicas": double.url, "drain_s": 0, "canaries": "canaries.yaml"}}),
        encoding="utf-8",
    )


def finish(home: Path) -> None:
    child = start_loop(home)
    child.join()
    assert child.exitcode == 0, (home.parent / f"{home.name}.log").read_text(encoding="utf-8")[-3000:]
    child.close()


def made(home: Path) -> dict[str, object]:
    """What is in the world after cycle2, and that it is there once."""
    with open_store(resolve({"home": home}, environ={}).settings) as store:
        progress = progress_of("cycle2", cycle_events(store, "cycle2"))
        assert (progress.state, progress.at.name) == ("waiting", "experiment"), progress
        done = [event.step for event in cycle_events(store, "cycle2") if event.event == "done"]
        assert len(done) == len(set(done)), done
        [experiment] = experiments.every(store)
        assert [event.event for event in experiment.events] == ["started"]
        assert [row.version for row in routes(store)] == [1] and [row.version for row in routes(store, arm="challenger")] == [2]
        versions = [registry.get_version(store, "med-assistant", number) for number in (1, 2)]
        with pytest.raises(registry.NoSuchVersionError):
            registry.get_version(store, "med-assistant", 3)
        aliases = [(change.alias, change.version) for change in registry.history(store, "med-assistant")]
        assert aliases == [("champion", 1), ("challenger", 2)]
        audit.verify(store)
        return {
            "weights": [file_sha256(home / version.path / "adapter_model.safetensors") for version in versions],
            "mix": file_sha256(home / "data/mix/cycle2/train.jsonl"),
            "pairs": file_sha256(home / "data/feedback/cycle2/preferences.jsonl"),
        }


@pytest.mark.slow
def test_killed_at_random_moments_it_ends_with_the_same_artifacts_and_nothing_is_done_twice(tmp_path: Path) -> None:
    home = tmp_path / "clinic"
    init_workspace(home)
    settings = Settings(home=home)
    jsonl.write(home / "log.jsonl", generate(300, seed=3))
    import_files([home / "log.jsonl"], settings.workspace.raw, name="log", options=ImportOptions())
    prepare(settings.workspace, PrepareConfig(scrub=False), seed=42)
    (home / "canaries.yaml").write_text(yaml.safe_dump([row.model_dump() for row in load_canaries()[:2]]), encoding="utf-8")
    (home / "loop.yaml").write_text(yaml.safe_dump(CYCLE), encoding="utf-8")
    new_feedback(settings, range(8))
    with ServerDouble() as first, ServerDouble() as second:
        point_to(home, first)
        finish(home)  # the first cycle: its version is the champion, and there is nothing to compare it with
        new_feedback(settings, range(20, 28))
        before = Path(shutil.copytree(home, tmp_path / "before"))
        began = time.monotonic()
        finish(home)
        whole_s, expected = time.monotonic() - began, made(home)
        chance, kills, finished = random.Random(11), 0, 0
        while kills < KILLS:
            killed = Path(shutil.copytree(before, tmp_path / f"killed{finished}"))
            point_to(killed, second)
            while True:
                child = start_loop(killed)
                child.join(chance.uniform(0.05, whole_s))
                if (ended := child.exitcode) is None:
                    child.kill()
                    child.join()
                    kills += 1
                child.close()
                if ended is not None:
                    assert ended == 0, (tmp_path / f"{killed.name}.log").read_text(encoding="utf-8")[-3000:]
                    break
            assert made(killed) == expected
            finished += 1
            shutil.rmtree(killed)
    (tmp_path / "result.txt").write_text(
        f"{kills} kills, {finished} cycles finished, {whole_s:.1f} s undisturbed\n", encoding="utf-8"
    )
