"""`medloop loop run` in a process of its own, forked, with a gate that passes and without MLflow: both have kill tests of their own."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from medloop.testing.processes import fork_server


def start_loop(home: Path, *words: str) -> Any:
    child = fork_server().Process(target=_loop_run, args=(home, words))
    child.start()
    return child


def _loop_run(home: Path, words: tuple[str, ...]) -> None:
    from medloop.loop import cycle
    from medloop.registry import promote, register
    from medloop.store.files.artifacts import verify_artifact
    from medloop.store.records import gates
    from medloop.testing.registry import examine

    def passing(_: object, store: Any, *, candidate: Any, **__: object) -> SimpleNamespace:
        artifact = verify_artifact(store.settings.home / str(candidate.adapter)).sha256
        if gates.latest_gate(store, artifact) is None:
            examine(store, artifact)
        return SimpleNamespace(result=gates.latest_gate(store, artifact))

    cycle.examine = passing  # type: ignore[assignment]
    promote.reconcile = register.reconcile = lambda store: None  # type: ignore[assignment,attr-defined]
    log = os.open(home.parent / f"{home.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(home)
    sys.argv = ["medloop", "loop", "run", *words]
    runpy.run_module("medloop", run_name="__main__")
