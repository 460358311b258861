"""Children that start in milliseconds, because they are forked from a process with the heavy imports behind it."""

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any


def fork_server() -> ForkServerContext:
    """The fork server of this process; it starts when it is first asked for, and every test uses the same one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["medloop.testing.warm"])
    forkserver.ensure_running()
    return context


@contextmanager
def running_medloop(*words: str, cwd: Path) -> Iterator[tuple[Any, Path]]:
    """The command `medloop WORDS` while it runs: its process (`pid`, `join`, `exitcode`) and the file of its output."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = (Path(folder, "out"), Path(folder, "err"))
        child = fork_server().Process(target=_as_command, args=(words, cwd, dict(os.environ), outputs))
        child.start()
        try:
            yield child, outputs[0]
        finally:
            child.kill()
            child.join()
            child.close()


def run_medloop(*words: str, cwd: Path, env: Mapping[str, str] | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """The command `medloop WORDS` in a process of its own, forked: training needs no ten seconds to import its libraries."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = (Path(folder, "out"), Path(folder, "err"))
        environ = {**(os.environ if env is None else env), **more}
        child = fork_server().Process(target=_as_command, args=(words, cwd, environ, outputs))
        child.start()
        child.join()
        out, err = (path.read_text(encoding="utf-8") if path.exists() else "" for path in outputs)
        assert child.exitcode is not None
        return subprocess.CompletedProcess(words, child.exitcode, out, err)


def _as_command(words: tuple[str, ...], cwd: Path, env: Mapping[str, str], outputs: tuple[Path, Path]) -> None:
    for number, path in zip((1, 2), outputs, strict=True):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["medloop", *words]
    runpy.run_module("medloop", run_name="__main__")
