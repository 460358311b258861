"""How medloop starts a process of Python: no file of the folder that it works in is imported.

    subprocess.Popen(python_command("medloop", "jobs", "work", job_id), cwd=settings.home, env=isolated(os.environ))

`python -m` puts the working folder before everything else on the path of imports, and so does an empty entry of PYTHONPATH. A
workspace holds what people import and download; a `yaml.py` in it must stay a file, and so must a `git` and a `libc.so.6`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from medloop.settings import CONFIG_NAME

SEARCHED = ("PYTHONPATH", "PATH", "LD_LIBRARY_PATH")  # modules, programs and libraries are looked for there


def python_command(module: str, *words: str) -> list[str]:
    """`-P`: neither the working folder nor the folder of a script is searched for imports."""
    return [sys.executable, "-P", "-m", module, *words]


def isolated(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for such a process and those that it starts: nothing is searched for in the folder where it works."""
    cleaned = {name: _whole_paths(value) if name in SEARCHED else value for name, value in environ.items()}
    rest = {
        name: value for name, value in cleaned.items() if value or name not in SEARCHED
    }  # an empty PATH is the working folder
    return {**rest, "PYTHONSAFEPATH": "1"}


def _whole_paths(entries: str) -> str:
    """Without empty entries, which mean the working folder, and without workspaces; others as whole paths."""
    paths = [os.path.abspath(entry) for entry in entries.split(os.pathsep) if entry]
    return os.pathsep.join(path for path in paths if not Path(path, CONFIG_NAME).exists())
