"""The stories of docs/cookbook.md: every command of a console block runs as it stands, in order, with what the story says."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from medloop.contracts import Correction, Feedback
from medloop.contracts.cycle import CycleEvent
from medloop.contracts.suite import SuiteConfig
from medloop.data.feedback.build import FeedbackConfig
from medloop.loop.feedback import build_from_feedback
from medloop.loop.workspace import init_workspace
from medloop.privacy.consent import subject_of
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.files.artifacts import folder_sha256
from medloop.store.records import crud, users
from medloop.store.records.cycles import add_cycle_event
from medloop.testing.feedback import make_correction, make_thumb
from medloop.testing.served_double import ServerDouble

sys.path.insert(0, str(Path(__file__).parent / "deploy"))
from deploy_world import add_versions, live_version, name_of

DOCS = Path(__file__).parents[1] / "docs"
PASSWORD = "correct horse battery"
Tell = Callable[[str], str]


def story(number: int) -> list[str]:
    """The commands of a story, without `$ medloop`."""
    text = (DOCS / "cookbook.md").read_text(encoding="utf-8")
    part = re.split(r"^## ", text, flags=re.MULTILINE)[number]
    return re.findall(r"^\$ medloop (.*)$", part, re.MULTILINE)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("medloop.store.passwords.COST", 2**4)
    init_workspace(tmp_path / "clinic")
    monkeypatch.chdir(tmp_path / "clinic")
    return tmp_path / "clinic"


@pytest.fixture
def tell(home: Path, command_line, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Run one command of a story; it must succeed."""

    def run(line: str) -> str:
        monkeypatch.setattr("medloop.cli.login.typer.prompt", lambda *_, **__: PASSWORD)
        done = command_line(*shlex.split(line))
        expected = 10 if line == "deploy check --once" else 0  # an alarm stands
        assert done.code == expected, f"medloop {line}\n{done.out}{done.err}"
        return done.out + done.err

    return run


@pytest.mark.slow  # the trial asks the built-in model
def test_a_clinician_corrects_a_missed_stroke(home: Path, tell: Tell) -> None:
    with open_store(Settings(home=home)) as store:
        for name in ("dr.li", "dr.wu"):
            users.add_user(store, name, "clinician", password=PASSWORD, actor="test")
        correction = Correction(
            prompt="我妈吃饭的时候筷子老是掉，嘴角有点流口水，是不是累了？", original="休息一下就好。", golden="这可能是中风，请立即拨打120送急诊。",
            consent=("training",), recorded_by=users.get_user(store, "dr.li").user_id,
        )  # fmt: skip
        crud.add(store, [correction], actor="test")
    ids, said = {"CORRECTION": correction.correction_id}, dict[str, str]()
    for line in story(1):
        for word, value in ids.items():
            line = line.replace(word, value)
        said[line] = out = tell(line)
        if found := re.search(r"rule_[\w-]+", out):
            ids.setdefault("ENTRY", found[0])
    shown = next(out for line, out in said.items() if line.startswith("codebook show"))
    assert "active" in shown and "First sentence: 这可能是中风，请立即拨打120送急诊。" in shown
    assert "data/feedback/week46" in next(out for line, out in said.items() if line.startswith("lineage"))
    assert "Nothing was done." in said["loop run --dry-run"] and len(said) == len(story(1))


@pytest.mark.slow  # promoting loads MLflow
def test_a_bad_release_is_rolled_back(home: Path, tell: Tell) -> None:
    with ServerDouble() as double:
        (home / "medloop.yaml").write_text(
            f"deploy: {{replicas: '{double.url}', drain_s: 0, probe_every_s: 0}}\n", encoding="utf-8"
        )
        settings = Settings.model_validate({"home": home, "deploy": {"replicas": double.url, "drain_s": 0}})
        with open_store(settings) as store:
            add_versions(store)
            two, flaggers = name_of(store, 2), [users.add_user(store, name, "clinician", actor="test") for name in ("a", "b")]
        tell("deploy")  # version 1, before the story
        for line in story(2):
            if line == "deploy check --once":
                with open_store(settings) as store:
                    flags = [
                        Feedback(session_id="s", agent_name="a", user_query="?", agent_response="!", model_version=two, thumb="down",
                                 critical=True, recorded_by=person.user_id, clinician_id=person.user_id)
                        for person in flaggers
                    ]  # fmt: skip
                    assert live_version(store) == 2
                    crud.add(store, flags, actor="test")
            tell(line)
        with open_store(settings) as store:
            assert live_version(store) == 1


def test_a_data_protection_officer_erases_a_patient(home: Path, tell: Tell) -> None:
    settings = Settings(home=home)
    with open_store(settings) as store:
        person = subject_of(store, "patient 7")
        about = [
            make_thumb(7, "Rest.", True, subject=person), make_correction(7, "Run.", "Rest, patient.", subject=person),
            make_correction(8, "Run a mile.", "See a doctor tomorrow."),
        ]  # fmt: skip
        crud.add(store, about, actor="test")
        folder = build_from_feedback(store, FeedbackConfig(name="cycle1", test_share=0), seed=1, actor="test").folder
        facts = {"dataset": "data/feedback/cycle1", "sha256": folder_sha256(folder)}
        inputs = "sha256:" + "0" * 64
        for step, outputs in (("plan", {"steps": "data"}), ("data", facts)):  # a cycle that has learnt from it
            add_cycle_event(store, CycleEvent(cycle="cycle1", step=step, event="done", inputs=inputs, outputs=outputs))
    said = {line: tell(line) for line in story(3)}
    erased = next(out for line, out in said.items() if line.startswith("erase") and "--dry-run" not in line)
    assert "complete" in erased and "data/feedback/cycle1, rewritten" in erased
    assert "An erasure has reached what it learnt from" in said["loop status"]


def test_the_suite_of_the_how_to_runs_as_it_stands() -> None:
    text = (DOCS / "howto/add-a-suite.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code is not None
    names: dict[str, object] = {}
    exec(compile(code[1], "add-a-suite.md", "exec"), names)

    class Model:
        def answer(self, prompts, config):
            return [SimpleNamespace(text="Take care.") for _ in prompts]

    result = names["Politeness"]().run(Model(), SuiteConfig(), lambda done, total: None)  # type: ignore[operator]
    assert [case.scores[0].value for case in result.cases] == [1.0, 1.0] and result.suite == "politeness"
