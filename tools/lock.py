"""The lock: which files `make setup` may install, by hash. Names and versions stand in constraints.txt, kept by hand.

    python tools/lock.py            # write the three locks anew, from the index pip is set up with
    python tools/lock.py --check    # no network: do the locks name what constraints.txt names? (exit 1: no)
    python tools/lock.py --own requirements-clients.txt     # the hashes of an environment of its own, by the pins in its file
    python tools/lock.py --cuda     # exit 0 when the torch that is installed asks for the CUDA packages

To move a pin: change constraints.txt, run this, read the difference, `make setup`, `make test`.

Only wheels are locked, those for CPython 3.11 to 3.13 on every platform: a source archive would run its own code to be installed.
torch has two builds under one version: the CPU build of its makers (requirements-cpu.lock), which is taken where pip can find it,
and that of the public index, which on Linux needs the packages of requirements-cuda.lock. They have locks of their own: pip would
prefer what an index lists with a hash to a file in a folder. For Linux and macOS; on Windows some packages need others that are
not here.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import url2pathname

ROOT = Path(__file__).resolve().parent.parent
CUDA = re.compile(r"cuda-|nvidia-|triton$")
PYTHONS = ("11", "12", "13")
CPU = "+cpu"
# CPU builds, which not every index has, by the hash that their makers publish: those that were installed and tested.
ELSEWHERE = {
    "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl": "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
}
HEAD = """\
# Written by tools/lock.py from constraints.txt: every wheel of these versions for CPython 3.11 to 3.13, by hash.
# pip refuses a file whose hash is not here. {}
"""
ABOUT = {
    "requirements.lock": "'make setup' installs exactly this.",
    "requirements-cpu.lock": "The CPU build of torch, which 'make setup' takes when pip can find it.",
    "requirements-cuda.lock": "What the CUDA build of torch needs beside it (Linux); 'make setup' adds it then.",
}


class LockError(Exception):
    """Said on one line; nothing was written."""


@dataclass(frozen=True)
class File:
    name: str
    sha256: str
    yanked: bool = False


def same(name: str) -> str:
    """One spelling per package: Jinja2, jinja2 and JINJA-2 are no three things."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    """Name to version; every line must be an exact pin."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    versions = {}
    for line in filter(None, lines):
        name, exact, version = line.partition("==")
        if not exact or not re.fullmatch(r"[0-9][\w.!]*", version):
            raise LockError(f"constraints.txt: '{line}' is no exact pin (name==version).")
        versions[same(name)] = version
    return versions


def read_lock(text: str) -> dict[str, tuple[str, list[str]]]:
    """Name to version and hashes."""
    pinned: dict[str, tuple[str, list[str]]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            name, version = line.split()[0].split("==")
            pinned[name] = version, re.findall(r"--hash=sha256:([0-9a-f]{64})", line)
    return pinned


def with_builds(versions: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and versions; torch also with the version of its CPU build."""
    return [*versions.items(), *((name, version + CPU) for name, version in versions.items() if name == "torch")]


def lock_of(name: str, version: str) -> str:
    return (
        "requirements-cpu.lock"
        if version.endswith(CPU)
        else "requirements-cuda.lock"
        if CUDA.match(name)
        else "requirements.lock"
    )


def differences(versions: Mapping[str, str], locks: Mapping[str, str]) -> list[str]:
    """What constraints and locks do not agree on, in words; empty when they do."""
    held = {(file, name): locked for file, text in locks.items() for name, locked in read_lock(text).items()}
    named = {(lock_of(name, version), name): version for name, version in with_builds(versions)}
    lost = [f"{name}=={version} is not in {file}" for (file, name), version in named.items() if (file, name) not in held]
    extra = [f"{file} has {name}, constraints.txt has not" for file, name in held if (file, name) not in named]
    moved = [
        f"{name}: {file} has {held[file, name][0]}, constraints.txt {version}"
        for (file, name), version in named.items()
        if (file, name) in held and held[file, name][0] != version
    ]
    bare = [f"{file}: {name} has no hash" for (file, name), (_, hashes) in held.items() if not hashes]
    return sorted([*lost, *extra, *moved, *bare])


def wheels(files: Iterable[File], version: str) -> dict[str, str]:
    """File name to hash, of the wheels of this version that our Pythons can use."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename
    from packaging.version import Version

    hashes: dict[str, str] = {}
    for file in files:
        if not file.name.endswith(".whl"):
            continue
        try:
            _, its_version, _, tags = parse_wheel_filename(file.name)
        except InvalidWheelFilename:  # some old ones are named in ways that no tool takes today
            continue
        if its_version != Version(version) or not any(_usable(tag.interpreter, tag.abi) for tag in tags):
            continue
        if file.yanked:
            raise LockError(f"{file.name} was withdrawn by its makers: choose another version.")
        if hashes.setdefault(file.name, file.sha256) != file.sha256:
            raise LockError(f"{file.name} exists with two contents: find out which one is real before you lock anything.")
    return hashes


def _usable(interpreter: str, abi: str) -> bool:
    if interpreter == "py3" or interpreter in {f"py3{minor}" for minor in PYTHONS}:
        return True
    minor = interpreter.removeprefix("cp3")
    return interpreter.startswith("cp3") and (minor in PYTHONS or (abi == "abi3" and minor.isdigit() and int(minor) <= 13))


def written(file: str, locked: Mapping[str, tuple[str, list[str]]]) -> str:
    return HEAD.format(ABOUT[file]) + _blocks(locked)


def _blocks(locked: Mapping[str, tuple[str, list[str]]]) -> str:
    blocks = [
        " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in sorted(set(hashes)))])
        for name, (version, hashes) in sorted(locked.items())
    ]
    return "\n".join(blocks) + "\n"


class _Links(HTMLParser):
    """The files of one page of an index."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        link = urlsplit(attributes.get("href") or "")
        if tag == "a" and link.fragment.startswith("sha256="):
            name = unquote(link.path.rsplit("/", 1)[-1])
            self.files.append(File(name, link.fragment.removeprefix("sha256="), "data-yanked" in attributes))


def links(page: str) -> list[File]:
    parser = _Links()
    parser.feed(page)
    return parser.files


def pip_config() -> dict[str, str]:
    """What pip was told by files and by the environment, which wins."""
    output = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    lines = [line.partition("=") for line in output.splitlines()]
    lines.sort(key=lambda line: line[0].startswith(":env:"))
    return {name.rsplit(".", 1)[-1]: str(ast.literal_eval(value)) for name, _, value in lines}


def finder() -> Callable[[str], Iterator[File]]:
    """All files of a project, from the index, the further indexes and the folders that pip is set up with."""
    import httpx
    from pip._internal.models.index import PyPI  # the address that pip asks unless told otherwise

    config = pip_config()
    client = httpx.Client(verify=_trust(config.get("cert")), timeout=60, follow_redirects=True, headers={"Accept": "text/html"})
    indexes = [config.get("index-url", PyPI.simple_url), *config.get("extra-index-url", "").split()]
    folders = [Path(text) for text in config.get("find-links", "").split() if "://" not in text]

    def files(name: str) -> Iterator[File]:
        for index in indexes:
            address = urljoin(index.rstrip("/") + "/", f"{name}/")
            if address.startswith("file:"):
                page = Path(url2pathname(urlsplit(address).path)) / "index.html"
                yield from links(page.read_text(encoding="utf-8")) if page.is_file() else ()
                continue
            answer = client.get(address)
            if answer.status_code != 404:
                yield from links(answer.raise_for_status().text)
        for path in (path for folder in folders for path in folder.glob("*.whl")):
            if same(path.name.split("-")[0]) == name:
                yield File(path.name, hashlib.sha256(path.read_bytes()).hexdigest())
        yield from (File(file, sha256) for file, sha256 in ELSEWHERE.items() if same(file.split("-")[0]) == name)

    return files


def _trust(cert: str | None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=cert) if cert else ssl.create_default_context()


def make(versions: Mapping[str, str], files: Callable[[str], Iterable[File]]) -> dict[str, str]:
    """The text of each lock."""
    locks: dict[str, dict[str, tuple[str, list[str]]]] = {file: {} for file in ABOUT}
    for number, (name, version) in enumerate(with_builds(versions), 1):
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{number} of {len(versions)} {name:40}")
        hashes = wheels(files(name), version)
        if not hashes:
            raise LockError(f"No wheel of {name}=={version} for CPython 3.11 to 3.13 is where pip looks, nor in ELSEWHERE.")
        locks[lock_of(name, version)][name] = version, list(hashes.values())
    return {file: written(file, locked) for file, locked in locks.items()}


def own_lock(text: str, files: Callable[[str], Iterable[File]]) -> str:
    """The lock of an environment beside ours, with the hashes that the index has now; its pins and comments stay."""
    head = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("#"))
    locked = {name: (version, list(wheels(files(name), version).values())) for name, (version, _) in read_lock(text).items()}
    if bare := [name for name, (_, hashes) in locked.items() if not hashes]:
        raise LockError(f"No wheel of {bare[0]}=={locked[bare[0]][0]} for CPython 3.11 to 3.13 is where pip looks.")
    return head + _blocks(locked)


def asks_for_cuda(requires: Iterable[str]) -> bool:
    from packaging.requirements import Requirement

    needs = [Requirement(text) for text in requires]
    return any(CUDA.match(same(need.name)) and (need.marker is None or need.marker.evaluate({"extra": ""})) for need in needs)


def _write(path: Path, text: str) -> None:
    whole = path.with_suffix(".new")
    whole.write_text(text, encoding="utf-8")
    os.replace(whole, path)


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare the locks with constraints.txt, without network")
    parser.add_argument("--own", metavar="FILE", help="write the hashes of another environment anew, by the pins in its file")
    parser.add_argument("--cuda", action="store_true", help="exit 0 when the installed torch asks for the CUDA packages")
    args = parser.parse_args()
    try:
        if args.cuda:
            return 0 if asks_for_cuda(metadata.requires("torch") or []) else 1
        if args.own:
            _write(ROOT / args.own, own_lock((ROOT / args.own).read_text(encoding="utf-8"), finder()))
            return 0
        versions = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
        if args.check:
            problems = differences(versions, {file: (ROOT / file).read_text(encoding="utf-8") for file in ABOUT})
            sys.stdout.write("".join(f"{line}\n" for line in problems) or f"The locks hold all {len(versions)} pins.\n")
            return 1 if problems else 0
        for file, text in make(versions, finder()).items():
            _write(ROOT / file, text)
            sys.stdout.write(f"{file}: {len(read_lock(text))} packages, {text.count('--hash')} files\n")
    except LockError as error:
        sys.exit(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
