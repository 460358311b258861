"""Locks: one holder at a time, several who only look, and nothing left behind by a killed process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from medloop.errors import BusyError, InputError
from medloop.store.files.lock import locked_file

HOLD = """
import sys, time
from pathlib import Path
from medloop.store.files.lock import locked_file
with locked_file(Path(sys.argv[1]), wait_s=0, mode=0o600):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_holder_is_refused_and_the_message_names_what_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with locked_file(path, wait_s=0, mode=0o600):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(BusyError, match=r"The queue is in use by another process \(waited 0 s\)"):
            with locked_file(path, wait_s=0, what="The queue", mode=0o600):
                pass
    with locked_file(path, wait_s=0):
        pass


def test_a_shared_lock_admits_others_who_look_but_no_holder(tmp_path: Path) -> None:
    with locked_file(tmp_path, wait_s=0, shared=True), locked_file(tmp_path, wait_s=0, shared=True):
        with pytest.raises(BusyError), locked_file(tmp_path, wait_s=0):
            pass
    with locked_file(tmp_path, wait_s=0), pytest.raises(BusyError), locked_file(tmp_path, wait_s=0, shared=True):
        pass


def test_without_a_mode_nothing_is_created(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"), locked_file(tmp_path / "none", wait_s=0):
        pass
    assert not (tmp_path / "none").exists()


def test_the_lock_goes_with_a_killed_process_and_is_not_inherited(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(BusyError), locked_file(path, wait_s=0.05):
            pass
        holder.send_signal(signal.SIGKILL)
    with locked_file(path, wait_s=1.0) as fd:
        assert not os.get_inheritable(fd)
