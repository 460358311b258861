"""Compile the modules in which the rules spend their time with mypyc: the same Python files, about a third faster (decision 11).

    python tools/compile.py             # compiled modules appear beside their sources, which they then replace
    python tools/compile.py --remove    # removes them again

Needs a C compiler and the development extra (mypy, setuptools). A compiled module hides later edits of its source: compile
again, or remove. Nothing else changes; without compiled modules the sources are used.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
BUILD = ROOT / "build" / "compiled"
# These modules call one another in the inner loops; what calls them once per answer is not compiled.
FOLDERS = ("medloop/lexicon", "medloop/reward/detect", "medloop/reward/rules")
FILES = tuple(f"medloop/reward/{name}.py" for name in ("answer_text", "fluency", "keyword_list", "points", "unread"))
LEFT_OUT = ("medloop/reward/detect/encoder_head.py",)  # it names a class of torch, which is not there when it is loaded


def modules() -> list[str]:
    """Paths below `src`, in a fixed order."""
    paths = [str(path.relative_to(SOURCE)) for folder in FOLDERS for path in (SOURCE / folder).glob("*.py")]
    return sorted({*paths, *FILES} - set(LEFT_OUT))


def remove() -> int:
    paths = [path for pattern in ("*.so", "*.pyd") for path in SOURCE.rglob(pattern)]
    for path in paths:
        path.unlink()
    return len(paths)


def compile_modules() -> None:
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang", "cl")):
        sys.exit("There is no C compiler, so nothing was compiled; everything works without it, only slower.")
    try:
        from mypyc.build import mypycify
        from setuptools import Distribution
    except ImportError:
        sys.exit("mypy or setuptools is missing, so nothing was compiled: run `make setup` first.")
    BUILD.mkdir(parents=True, exist_ok=True)
    os.chdir(SOURCE)  # mypyc names modules by their path from here
    os.environ["MYPYPATH"] = str(SOURCE)
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(BUILD / "mypy_cache")]
    extensions = mypycify([*options, *modules()], opt_level="3", target_dir=str(BUILD / "c"), group_name="medloop")
    command = Distribution({"name": "medloop-compiled", "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(BUILD / "lib"), str(BUILD / "temp")
    command.ensure_finalized()
    command.run()
    remove()
    for built in command.get_outputs():
        shutil.copyfile(built, SOURCE / Path(built).relative_to(BUILD / "lib"))


def check() -> None:
    """Every module must now load from its compiled form."""
    names = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in modules()]
    code = f"import importlib as i; print(*(n for n in {names} if i.import_module(n).__spec__.origin.endswith('.py')))"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if result.returncode or result.stdout.strip():
        remove()
        sys.exit(f"The compiled modules do not load and were removed again: {result.stderr or result.stdout}")
    sys.stdout.write(f"Compiled {len(names)} modules; `python tools/compile.py --remove` goes back to the sources.\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remove", action="store_true", help="Delete the compiled modules.")
    if parser.parse_args().remove:
        sys.stdout.write(f"Removed {remove()} compiled files.\n")
        return
    compile_modules()
    check()


if __name__ == "__main__":
    main()
