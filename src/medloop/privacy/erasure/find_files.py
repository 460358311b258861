"""Find the files that hold erased records, by lineage and by their bytes, and rewrite them without the rows.

Before a file is replaced, `reports/erasure/ID.files.jsonl` gets a line with its hashes, so an erasure that continues after a kill
knows what it changed. Sealed folders are sealed again; a checkpoint that holds the words is removed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ahocorasick_rs import BytesAhoCorasick

from medloop.contracts import ErasedRows, sha256_id
from medloop.errors import MedloopError
from medloop.privacy.erasure.needles import ErasedText, Needles
from medloop.privacy.erasure.rewrite import Cutter, Unreadable, rehash
from medloop.settings import CONFIG_NAME
from medloop.store.db import Store
from medloop.store.files import jsonl, workspace_scan
from medloop.store.files.artifacts import MANIFEST, file_sha256, folder_sha256, sweep, verify_artifact
from medloop.store.records.plain_columns import APPEND_ONLY, columns_with

Recard = Callable[[bytes, Mapping[str, bytes], ErasedRows], Mapping[str, bytes] | None]
CARDS, READABLE = (".json", ".md"), "DATA_CARD.md"


@dataclass
class FileSearch:
    """The result of a search: `left` files still hold the words, `unsearched` files are in a packed format.

    `columns` say where the database holds them. `by_hand`: what an erasure never edits, and a person has to look at.
    """

    searched: int = 0
    bytes: int = 0
    hits: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    unsearched: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)


def own_files(store: Store) -> set[Path]:
    """The files of the SQLite database: they are searched, but never rewritten."""
    if not store.is_sqlite:
        return set()
    database = str(store.engine.url.database)
    return {Path(database + ending) for ending in ("", "-wal", "-shm", "-journal", ".lock")}


def search_files(store: Store, cutter: Cutter, keep_out: Path) -> FileSearch:
    """Search every file without changing it."""
    search = FileSearch()
    for path, name in _every(store, keep_out):
        search.searched += 1
        search.bytes += path.stat().st_size
        if packed := workspace_scan.kind_of(path):
            search.unsearched.append(f"{name} ({packed})")
            continue
        try:
            with workspace_scan.opened(path) as data:
                if not cutter.holds(path, data) or not (cutter.needles.hit(data) or _cuts(cutter, path, bytes(data))):
                    continue
            if path == settings_file(store):
                search.by_hand.append(f"{name}: the settings hold a code or a text of the person; edit them yourself")
            else:
                search.hits.append(name)
        except workspace_scan.TooLargeError:
            search.unsearched.append(f"{name} (gzip of more than {workspace_scan.MOST_UNPACKED:,} bytes)")
    return search


def look_into_database(store: Store, needles: Needles, search: FileSearch) -> None:
    """Say in which columns the database holds the words. The audit log is never changed, so it keeps no erasure from its end."""
    names = {
        path.relative_to(store.settings.home).as_posix() for path in own_files(store) if path.is_relative_to(store.settings.home)
    }
    if store.is_sqlite and not names & set(search.hits):
        return
    places = columns_with(store, lambda text: needles.hit(text.encode(errors="replace")))
    search.columns = [place for place in places if not place.startswith(APPEND_ONLY)]
    for place in sorted({*places} - {*search.columns}):
        search.by_hand.append(f"{place}: the audit log holds a code of the person; it is never changed")
    if places and not search.columns:
        search.hits = [name for name in search.hits if name not in names]
    if search.columns and not store.is_sqlite:
        search.hits.append("the database")


def settings_file(store: Store) -> Path:
    """No erasure edits it: the server may not start again."""
    return store.settings.home / CONFIG_NAME


def hash_of(path: Path) -> str | None:
    """The hash of a file or of a sealed folder; None if it is neither."""
    if path.is_file():
        return file_sha256(path)
    return folder_sha256(path) if (path / MANIFEST).is_file() else None


def hashes_of(store: Store, names: Iterable[str]) -> set[str]:
    """The hashes of files, and of the sealed folders that contain them."""
    hashes, home = set(), store.settings.home
    for path in (home / name for name in names):
        if path.is_file() and path not in own_files(store):
            folder = workspace_scan.sealed_above(home, path)
            hashes |= {file_sha256(path)} | (set() if folder is None else {folder_sha256(folder)})
    return hashes


def rewrite_files(store: Store, cutter: Cutter, log: Path, erasure_id: str, recard: Recard | None) -> FileSearch:
    """Rewrite every file that holds erased records, until a search finds nothing more to rewrite."""
    home, keep_out, done = store.settings.home, log.parent, FileSearch()
    for parent in {path.parent for path, _ in _every(store, keep_out)}:
        sweep(parent)
    seen = -1
    while seen != len(cutter.inspected):  # a verdict refers to a sample that may be removed after the verdict was checked
        seen = len(cutter.inspected)
        changes: dict[Path, dict[str, tuple[bytes, int]]] = {}
        done.left = []
        for path, name in _every(store, keep_out):
            content = _without(cutter, path, name, own_files(store) | {settings_file(store)}, done)
            if content is None:
                continue
            folder = workspace_scan.sealed_above(home, path)
            if folder is None:
                _change(home, path, *content, log)
            else:
                changes.setdefault(folder, {})[path.relative_to(folder).as_posix()] = content
        for folder, files in changes.items():
            _change_sealed(home, folder, files, log, erasure_id, recard, done)
    return done


def _without(cutter: Cutter, path: Path, name: str, untouched: set[Path], done: FileSearch) -> tuple[bytes, int] | None:
    """The new content of a file and how many rows were removed; None to leave the file as it is."""
    if path in untouched or workspace_scan.kind_of(path):
        return None
    try:
        with workspace_scan.opened(path) as data:
            if not cutter.holds(path, data):
                return None
            plain = bytes(data)
        cut = cutter.cut(path, plain)
    except (Unreadable, workspace_scan.TooLargeError):
        if "checkpoints" in path.parts:
            return b"", 0
        done.left.append(name)
        return None
    if cut is None:
        return None
    return (workspace_scan.pack(cut.content) if workspace_scan.is_gzip(path) else cut.content), cut.rows


def _cuts(cutter: Cutter, path: Path, data: bytes) -> bool:
    try:
        return cutter.cut(path, data) is not None
    except Unreadable:
        return True


def _change(home: Path, path: Path, content: bytes, rows: int, log: Path) -> None:
    """Replace one file that is not sealed, and update cards beside it that contain its hash."""
    old, new = sha256_id(path.read_bytes()), sha256_id(content)
    _note(log, home, path, "rewritten", rows, {old: new}, before=old, after=new)
    workspace_scan.replace_file(path, content)
    for card in path.parent.glob("*.json"):
        text = card.read_bytes()
        if old.encode() in text:
            workspace_scan.replace_file(card, rehash(text, {old: new}, {path.name: rows}, card.name))


def _change_sealed(
    home: Path, folder: Path, files: Mapping[str, tuple[bytes, int]], log: Path, erasure_id: str,
    recard: Recard | None, done: FileSearch,
) -> None:  # fmt: skip
    before = folder_sha256(folder)
    hashes = {sha256_id((folder / name).read_bytes()): sha256_id(content) for name, (content, _) in files.items()}
    rows = sum(count for _, count in files.values())
    if "checkpoints" in folder.parts:
        _note(log, home, folder, "removed", rows, hashes, before=before)
        workspace_scan.remove(folder)
        return
    changed: dict[str, bytes] = {name: content for name, (content, _) in files.items()}
    changed |= _cards(folder, changed, hashes, {Path(name).name: count for name, (_, count) in files.items()})
    if READABLE in changed:
        note = f"{rows:,} rows were erased later ({erasure_id}); the counts above are from before."
        changed[READABLE] += f"\n## Erased\n\n{note}\n".encode()
    if recard is not None and "card.json" in changed:
        content = {name: changed[name] if name in changed else (folder / name).read_bytes() for name in _names(folder)}
        changed |= recard(changed["card.json"], content, ErasedRows(erasure_id=erasure_id, before=before, rows=rows)) or {}
    _note(log, home, folder, "rewritten", rows, hashes, before=before)
    try:
        workspace_scan.reseal(folder, changed)
    except MedloopError:  # damaged, or it has files that medloop did not write: leave it and report it
        done.left += [f"{folder.relative_to(home).as_posix()}/{name}" for name in files]
        return
    _note(log, home, folder, "rewritten", rows, hashes, before=before, after=verify_artifact(folder).sha256)


def remove_condemned(store: Store, names: Iterable[str], log: Path) -> None:
    """Delete files and folders that still are what they were before an erasure."""
    home, before = store.settings.home, {name: hash_of(store.settings.home / name) for name in names}
    for name, sha256 in before.items():
        if sha256 is not None:
            _note(log, home, home / name, "removed", 0, {}, before=sha256)
            workspace_scan.remove(home / name)


def answer_caches(store: Store) -> list[str]:
    """Files with answers of models by the hash of their prompt: nobody can tell which of them answer an erased question."""
    home, folder = store.settings.home, store.settings.workspace.answer_cache
    return [path.relative_to(home).as_posix() for path in workspace_scan.files(home) if folder in path.parents]


def _cards(folder: Path, changed: Mapping[str, bytes], hashes: Mapping[str, str], rows: Mapping[str, int]) -> dict[str, bytes]:
    """Cards and other small texts of a folder that contain the hashes of changed files."""
    cards = {}
    for name in _names(folder):
        if name in changed or not name.endswith(CARDS):
            continue
        text = (folder / name).read_bytes()
        if (new := rehash(text, hashes, rows, name)) != text:
            cards[name] = new
    return cards


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != MANIFEST]


def _note(
    log: Path, home: Path, path: Path, action: str, rows: int, hashes: Mapping[str, str], *, before: str, after: str | None = None
) -> None:  # fmt: skip
    line: dict[str, Any] = {"path": path.relative_to(home).as_posix(), "action": action, "rows": rows, "hashes": dict(hashes)}
    jsonl.append(log, line | {"before": before} | ({"after": after} if after else {}))


def logged_changes(log: Path) -> list[dict[str, Any]]:
    """The changes of an erasure so far, one per path and old hash; an unfinished change has no `after`."""
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for line in jsonl.read(log) if log.is_file() else ():
        changes[line["path"], line["before"]] = changes.get((line["path"], line["before"]), {}) | line
    return list(changes.values())


def _every(store: Store, keep_out: Path) -> Iterator[tuple[Path, str]]:
    """Files with their names in the workspace, without the reports of erasures and the keys, which hold no erased text."""
    home, keys = store.settings.home, store.settings.workspace.keys
    for path in workspace_scan.files(home):
        if not {keep_out, keys} & set(path.parents):
            yield path, path.relative_to(home).as_posix()


def ciphertext_left(store: Store, marks: list[bytes]) -> bool:
    """Whether the files of the SQLite database still hold bytes of the erased rows."""
    if not marks:
        return False

    machine = BytesAhoCorasick(marks)
    for path in own_files(store):
        if path.is_file():
            with workspace_scan.opened(path) as data:
                if machine.find_matches_as_indexes(data):
                    return True
    return False


def database_holds(store: Store, needles: Needles) -> bool:
    """Whether the files of the SQLite database hold the words in plain: in a column, or on a page that was freed."""
    for path in own_files(store):
        if path.is_file():
            with workspace_scan.opened(path) as data:
                if needles.hit(data):
                    return True
    return False


def needles_of(words: Iterable[tuple[str, bool]], names: Iterable[str] = ()) -> Needles:
    return Needles((ErasedText(text, authored) for text, authored in words), names)
