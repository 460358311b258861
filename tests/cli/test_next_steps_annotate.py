"""Every command that 'medloop annotate' prints as the next step runs as it stands."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records.workspace_settings import set_consent_default
from medloop.testing.label_studio_server import LEGACY, LabelStudioServer

sys.path.insert(0, str(Path(__file__).parents[1] / "annotate"))
from annotation_desk import RATERS, add_negatives, add_people, corrected, new_workspace, text

STEP = re.compile(r"(?:: |with: )medloop ((?:--home \S+ )?[a-z][^\n`']+?)\.?$", re.MULTILINE)


def test_the_next_steps_of_annotation_run(tmp_path: Path, command_line, monkeypatch: pytest.MonkeyPatch) -> None:
    home = new_workspace(tmp_path / "clinic")
    with LabelStudioServer() as server:
        monkeypatch.setenv("LABEL_STUDIO_URL", server.url)
        monkeypatch.setenv("LABEL_STUDIO_API_KEY", LEGACY)
        (home / "medloop.yaml").write_text(f"label_studio: {{raters: '{RATERS}'}}\n", encoding="utf-8")
        with open_store(Settings(home=home)) as store:
            add_negatives(store, 3, rater=add_people(store)["dr-wu"])
            set_consent_default(store, ["training"], actor="t")
        steps, said = dict[str, int](), list[str]()

        def run(*words: str) -> int:
            done = command_line("--home", home, *words)
            said.append(done.out + done.err)
            for step in STEP.findall(done.out + done.err):
                command = step.partition(f"--home {home} ")[2] or step
                if command not in steps:
                    steps[command] = -1
                    steps[command] = run(*shlex.split(command))
            return int(done.code)

        assert run("annotate", "pull") != 0  # prints: annotate push, which runs, and prints: annotate pull
        first, second, third = server.tasks
        server.annotate(first, corrected(1))
        server.annotate(second, [text("golden", "手机一三八零零一三八零零零")])
        server.annotate(third, [{"from_name": "x", "to_name": "answer", "type": "rating", "value": {"rating": 1}}])
        server.annotate(third, corrected(3), user=1)
        assert run("annotate", "pull") == 0  # prints: annotate status, quarantine list, data build
    wanted = {"annotate push", "annotate pull", "annotate status", "quarantine list", "data build"}
    assert wanted <= steps.keys() and {step: code for step, code in steps.items() if code} == {}
    page = "\n".join(said)
    assert "name a control that the form does not have" in page and "nobody here is admin@example.org" in page
    assert LEGACY not in page and "手机" not in page
