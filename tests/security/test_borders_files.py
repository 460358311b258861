"""What medloop keeps in a workspace can be read by its owner alone, whatever the umask of the shell is."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

from medloop.loop.workspace import init_workspace
from medloop.settings import Workspace
from medloop.store.files.private import open_to_others


def medloop(home: Path, *words: str) -> str:
    """The command in a shell that lets everybody read and write new files."""
    command = [sys.executable, "-m", "medloop", "--home", str(home), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, preexec_fn=lambda: os.umask(0)).stdout


def modes(folder: Path) -> set[str]:
    return {f"{stat.S_IMODE(path.lstat().st_mode):o}" for path in (folder, *folder.rglob("*"))}


def test_a_workspace_and_what_is_imported_into_it_is_its_owners_alone(tmp_path):
    home, visits = tmp_path / "clinic", tmp_path / "visits.jsonl"
    visits.write_text(json.dumps({"question": "What is a cold?", "answer": "A viral infection of the nose and throat."}) + "\n")
    visits.chmod(0o644)
    medloop(home, "init", str(home))
    medloop(home, "data", "import", str(visits), "--name", "visits")
    assert (home / "data/raw/visits/visits.jsonl").is_file() and modes(home) <= {"600", "700"}


def test_what_others_can_read_is_told_and_made_private(tmp_path):
    home = tmp_path / "clinic"
    init_workspace(home)
    assert modes(home / "data") <= {"700"} and open_to_others(Workspace(home)) == []
    for name in ("data/raw/old.jsonl", "models/lora/run.sh", "notes.txt"):
        (home / name).write_text("x")
        (home / name).chmod(0o755)
    (home / "data/raw/link").symlink_to(home / "notes.txt")
    home.chmod(0o755)
    assert "other users of this machine can read: 3." in medloop(home, "db", "check")
    assert "are private now: 3." in medloop(home, "init", str(home))
    assert "No file of the workspace can be read by other users" in medloop(home, "db", "check")
    assert stat.S_IMODE((home / "models/lora/run.sh").stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "notes.txt").stat().st_mode) == 0o755  # not medloop's, also not through the link
