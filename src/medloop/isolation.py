"""How medloop starts a process of Python: no file of the folder that it works in is imported.

    subprocess.Popen(python_command("medloop", "jobs", "work", job_id), cwd=settings.home, env=isolated(os.environ))

`python -m` puts the working folder before everything else on the path of imports, and so does an empty entry of PYTHONPATH. A
workspace holds what people import and download; a `yaml.py` in it must stay a file.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from medloop.settings import CONFIG_NAME


def python_command(module: str, *words: str) -> list[str]:
    """`-P`: neither the working folder nor the folder of a script is searched for imports."""
    return [sys.executable, "-P", "-m", module, *words]


def isolated(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for such a process and those that it starts: its PYTHONPATH names whole paths, and no workspace."""
    entries = [os.path.abspath(entry) for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    kept = [entry for entry in entries if not Path(entry, CONFIG_NAME).exists()]
    rest = {name: value for name, value in environ.items() if name != "PYTHONPATH"}
    return {**rest, "PYTHONSAFEPATH": "1", **({"PYTHONPATH": os.pathsep.join(kept)} if kept else {})}
