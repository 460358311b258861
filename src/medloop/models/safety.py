"""What a model folder may contain: an allow-list, checked before any framework opens a file.

A pickle runs code when it is read, and so does a repository with its own Python code (`auto_map`). Scanners for known-bad
content have been fooled again and again, so nothing is scanned here: every file has an ending from a short list, a weight
file has the layout of safetensors, a configuration names no code, a link stays inside. Anything else refuses the whole folder,
with every reason at once.
"""

import json
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from medloop.contracts import canonical_json, sha256_id
from medloop.errors import ModelError, explain_os_errors
from medloop.store.files.atomic import file_sha256

WEIGHTS = ".safetensors"
PAYLOAD = (WEIGHTS, ".json", ".jinja", ".model", ".txt")  # what decides how a model behaves
OTHERS = (".jsonl", ".md", ".yaml", ".yml", ".csv", ".html", ".png", ".jpg", ".jpeg", ".svg")  # cards, pictures: never opened
NAMES = ("LICENSE", "LICENCE", "NOTICE", "README", "USE_POLICY", ".gitattributes", ".gitignore")
# They are about a model and decide nothing: the same weights made twice, or put into a release, have the same fingerprint.
NOT_IDENTITY = ("card.json", "MANIFEST.json", "eval_report.json", "safety_ledger.json")
POOLING = "1_Pooling/config.json"  # how a sentence encoder makes one vector of many
LFS_POINTER = b"version https://git-lfs"
HEADER_LIMIT = 100_000_000  # bytes; the limit of the safetensors format itself


def check_folder(folder: Path, *, hub_cache: Path | None = None) -> None:
    """Raise ModelError unless every file is of an allowed kind and every link stays inside.

    A hub's cache is shared with other programs, which may have fetched other files: there only the files that medloop
    fetches and opens are checked, and links may lead anywhere in that repository's cache.
    """
    with explain_os_errors(folder):
        files = [(name, path) for name, path in folder_files(folder) if hub_cache is None or needed_name(name)]
        root = (hub_cache or folder).resolve()
        problems = [f"{name}: {why}" for name, path in files for why in _problems(path, root)]
    if problems:
        shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise ModelError(
            f"{folder} is refused, because a model must be safetensors and JSON only ({shown})",
            "Use a safetensors copy of the model, without those files",
        )


def allowed_name(name: str) -> bool:
    """Whether a file of this name may be in a model folder."""
    base = name.rsplit("/", 1)[-1]
    return base in NAMES or base.lower().endswith((*PAYLOAD, *OTHERS))


def needed_name(name: str) -> bool:
    """Whether a file of this name is worth fetching: weights, configuration, tokenizer, licence; top level and POOLING only."""
    useful = name.lower().endswith((*PAYLOAD, ".md")) or name in NAMES
    return name == POOLING or ("/" not in name and allowed_name(name) and useful)


def fingerprint(folder: Path) -> str:
    """`sha256:…` over the names and contents of the files that decide how a model behaves."""
    with explain_os_errors(folder):
        payload = {name: path for name, path in folder_files(folder) if decides(name)}
    return fingerprint_of({name: file_hash(path) for name, path in payload.items()})


def fingerprint_of(hashes: Mapping[str, str]) -> str:
    """The same from the hashes of a folder's files by name, as its manifest has them."""
    return sha256_id(canonical_json({name: sha256 for name, sha256 in hashes.items() if decides(name)}))


def decides(name: str) -> bool:
    """Whether a file of this name in a model folder decides how the model behaves."""
    return name.lower().endswith(PAYLOAD) and name not in NOT_IDENTITY


def file_hash(path: Path) -> str:
    """`sha256:…` of a file. A command asks for a model several times; gigabytes are read once, unless they changed meanwhile."""
    with explain_os_errors(path):
        return _hash(path, *file_state(path))


def file_state(path: Path, *, follow: bool = True) -> tuple[int, ...]:
    """Which file it is, its size, and when it was changed: another file, or a written one, has another state.

    Only pages that a process holds mapped can change without it, until they are written back.
    """
    stat = path.stat(follow_symlinks=follow)
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


@lru_cache(maxsize=4096)
def _hash(path: Path, *_: int) -> str:
    return file_sha256(path)


def read_json(path: Path) -> dict[str, Any]:
    """One configuration file; ModelError when it is not a JSON object."""
    value = _parse(path)
    if not isinstance(value, dict):
        raise ModelError(f"{path} should hold a JSON object", "Fetch the model again")
    return value


def _parse(path: Path) -> Any:
    with explain_os_errors(path):
        raw = path.read_bytes()
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise ModelError(f"{path} is not valid JSON", "Fetch the model again") from None


def folder_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file by relative name. Hidden folders (.git, .cache) are skipped: no framework looks into them."""
    for parent, folders, names in os.walk(folder):
        links = [n for n in folders if (Path(parent) / n).is_symlink()]
        folders[:] = sorted(n for n in folders if not n.startswith(".") and n not in links)
        for name in sorted((*names, *links)):
            path = Path(parent) / name
            yield path.relative_to(folder).as_posix(), path


def _problems(path: Path, root: Path) -> Iterator[str]:
    if path.is_symlink() and not path.resolve().is_relative_to(root):
        yield "a link that leaves the folder"
    elif not path.is_file():
        yield "neither a file nor a folder" if path.exists() else "a link to nothing"
    elif not allowed_name(path.name):
        yield "not an allowed kind of file (weights in other formats and Python files can run code)"
    elif path.name.lower().endswith(WEIGHTS):
        yield from _weight_problems(path)
    elif path.name.endswith("config.json"):
        yield from _config_problems(_parse(path))  # sentence encoders bring one that is a list
    elif path.name.endswith("index.json"):
        yield from _index_problems(path)


def _weight_problems(path: Path) -> Iterator[str]:
    """The layout of the format: 8 bytes of header length, a JSON header, then exactly the bytes that it describes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(len(LFS_POINTER))
        if start == LFS_POINTER:
            yield "a Git LFS pointer, not the weights (fetch them with: git lfs pull)"
            return
        length = int.from_bytes(start[:8], "little")
        if size < 10 or length > min(size - 8, HEADER_LIMIT):
            yield "not safetensors, whatever its name says"
            return
        file.seek(8)
        header = file.read(length)
    try:
        tensors = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
        end = max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        yield "its safetensors header cannot be read"
        return
    if end != size - 8 - length:
        yield "it is shorter or longer than its header says"


def _config_problems(value: Any) -> Iterator[str]:
    """Keys by which a configuration names code of a repository, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _config_problems(item)
    elif isinstance(value, dict):
        if "auto_map" in value:
            yield "asks to run its own Python code (auto_map)"
        for key, item in value.items():
            if "implementation" in key and isinstance(item, str) and "/" in item:
                yield f"asks for kernel code from a hub ({key})"
            yield from _config_problems(item)


def _index_problems(path: Path) -> Iterator[str]:
    names = read_json(path).get("weight_map")
    if not isinstance(names, dict) or not all(
        isinstance(n, str) and "/" not in n and n.endswith(WEIGHTS) for n in names.values()
    ):
        yield "names weight files that are not safetensors beside it"
