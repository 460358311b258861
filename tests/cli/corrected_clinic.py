"""A workspace with clinicians and one correction, and its command line."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Correction
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud, users

PASSWORD = "correct horse battery"


def corrected_clinic(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, clinicians: tuple[str, ...], original: str, consent: tuple[str, ...]
) -> Callable[..., str]:
    """The first clinician wrote the correction. Returns what runs a line and gives its output."""
    monkeypatch.setattr("medloop.store.passwords.COST", 2**4)
    init_workspace(home)
    with open_store(Settings(home=home)) as store:
        for name in clinicians:
            users.add_user(store, name, "clinician", password=PASSWORD, actor="test")
        record = Correction(
            prompt="我爸刚才嘴角突然歪了，说话也不清楚，怎么办？", original=original, golden="这可能是中风，请立即拨打120送急诊。",
            consent=consent, recorded_by=users.get_user(store, clinicians[0]).user_id,
        )  # fmt: skip
        crud.add(store, [record], actor="test")
    monkeypatch.chdir(home)

    def run(line: str, ok: bool = True) -> str:
        result = CliRunner().invoke(app, shlex.split(line), input=f"{PASSWORD}\n")
        assert (result.exception is None) is ok, f"{line}: {result.output} {result.exception!r}"
        return result.output

    return run
