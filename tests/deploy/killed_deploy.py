"""Deploy or roll back in a process that ends itself at its n-th step; calls to a model server count too, before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from killed_steps import Steps, run_until
from medloop.deploy.server import HttpServer
from medloop.loop.deploy import deploy_alias, open_fleet
from medloop.loop.rollback import roll_back
from medloop.settings import resolve
from medloop.store.db import open_store
from medloop.testing.processes import fork_server


def work_until(home: Path, work: str, last: int) -> tuple[int | None, int]:
    """(exit code, steps) of a process that is killed at step `last`; 0: never."""
    return run_until(fork_server(), _work, home, work, last)


def _work(home: Path, work: str, steps: Steps) -> None:
    call = HttpServer._call

    def counted(server: HttpServer, *args: Any, **more: Any) -> Any:
        steps.step()
        answer = call(server, *args, **more)
        steps.step()
        return answer

    HttpServer._call = counted  # type: ignore[method-assign]
    with open_store(resolve({"home": home}).settings) as store, open_fleet(store) as fleet:
        if work == "deploy":
            deploy_alias(fleet, actor="test")
        else:
            roll_back(fleet, actor="test", reason="worse in triage")
