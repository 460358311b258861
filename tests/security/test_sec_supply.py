"""Classes 15 and 24: no secret lies in the tree or is made from nothing; what is installed is pinned and starts no code."""

from __future__ import annotations

import re
import site
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from sec_world import client_of

from medloop.errors import MedloopError
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store import crypto
from medloop.store.db import open_store
from medloop.store.records import users
from medloop.web.app import create_app

ROOT = Path(__file__).parents[2]

# Class 15

SECRETS = {
    "a key of ours": re.compile(r"mlk_[0-9a-f]{12}_[A-Za-z0-9_-]{43}"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "a cloud key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a service key": re.compile(
        r"\b(?:sk-[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{30,}|gh[pousr]_[A-Za-z0-9]{36}|xox[bp]-[0-9A-Za-z-]{20,})"
    ),
    "a named secret": re.compile(
        r"""(?i)\b\w*(?:api_?key|secret|passw(?:or)?d|auth_token|encryption_key)\w*["']?\s*[:=]\s*["'](?-i:(?![A-Z_]+["']))[A-Za-z0-9+/=_.-]{8,}["']"""  # capitals: the name of a variable
    ),
}


def check_secrets(text: str) -> list[str]:
    return [name for name, pattern in SECRETS.items() if pattern.search(text)]


def tracked(*folders: str) -> list[Path]:
    result = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True)
    if result.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in result.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_secret_lies_in_what_is_shipped() -> None:
    texts = [
        path for path in tracked("src", "configs", "examples", "docs", "README.md", "Makefile") if path.stat().st_size < 2**20
    ]
    assert len(texts) > 100
    secrets = {path.name: names for path in texts if (names := check_secrets(path.read_text(encoding="utf-8", errors="ignore")))}
    assert secrets == {}


def test_no_real_key_lies_in_the_tests() -> None:
    plain = {name: pattern for name, pattern in SECRETS.items() if name != "a named secret"}  # tests have made-up passwords
    for path in tracked("tests", "benchmarks", "tools"):
        text = path.read_text(encoding="utf-8", errors="ignore")
        assert not [name for name, pattern in plain.items() if pattern.search(text)], path


PLANTED = [
    "mlk_" + "a1" * 6 + "_" + "x" * 43,
    "-----BEGIN RSA " + "PRIVATE KEY-----",
    "AKIA" + "ABCDEFGHIJ234567",
    'DEFAULT_API_KEY = "' + 'argilla.apikey"',
    "password: '" + "12345678'",
    "sk-" + "a1b2c3d4" * 4,
    "hf_" + "A1b2C3d4" * 5,
    'SECRET_KEY = "' + 'django-insecure-x"',
]


@pytest.mark.parametrize("text", PLANTED)
def test_red_a_planted_secret_is_found(text: str) -> None:
    assert check_secrets(text)


def starts(home: Path) -> bool:
    try:
        with client_of(create_app(Settings(home=home), supervise=False)):
            return True
    except MedloopError:
        return False


def check_start(home: Path) -> list[str]:
    """States of the key in which the server starts although it should not."""
    key, problems = Settings(home=home).master_key_file, []
    good = key.read_bytes()
    for mode in (0o644, 0o640, 0o604, 0o666, 0o660, 0o777):
        key.chmod(mode)
        problems += [oct(mode)] if starts(home) else []
    key.chmod(0o600)
    for text in (b"", b"secret", b"changeme", b"A" * 44, good[:-4], b"A" * 43 + b"="):
        key.write_bytes(text)
        problems += [text.decode()] if starts(home) else []
    key.unlink()
    problems += ["none"] if starts(home) else []
    key.touch(mode=0o600)
    key.write_bytes(good)
    assert starts(home)
    return problems


def test_no_start_without_the_key_that_was_made_and_is_its_owners_alone(tmp_path: Path) -> None:
    init_workspace(tmp_path / "clinic")
    assert check_start(tmp_path / "clinic") == []


def test_red_a_key_that_is_read_without_looking_at_its_mode_is_found(tmp_path: Path, monkeypatch) -> None:
    init_workspace(tmp_path / "clinic")
    careless = lambda path: crypto.MasterKey(crypto.decode_key(path.read_bytes(), "file"), "file")  # noqa: E731
    monkeypatch.setattr(crypto, "read_key_file", careless)
    assert {"0o644", "0o777"} <= set(check_start(tmp_path / "clinic"))


def test_two_workspaces_share_no_secret_and_start_with_nobody(tmp_path: Path) -> None:
    keys = []
    for name in ("one", "two"):
        init_workspace(tmp_path / name)
        with open_store(Settings(home=tmp_path / name)) as store:
            assert users.list_users(store) == []
            keys.append(users.new_key(store, users.add_user(store, "li", "admin", actor="t"), actor="t"))
    files = [Settings(home=tmp_path / name).master_key_file.read_bytes() for name in ("one", "two")]
    assert len({*files}) == 2 and not set(keys[0].split("_")[1:]) & set(keys[1].split("_")[1:])


# Class 24

KNOWN = {"distutils-precedence.pth", "a1_coverage.pth"}  # of setuptools and coverage


def check_pth(folder: Path) -> list[str]:
    """Files that run code with every start of Python."""
    return [
        path.name
        for path in folder.glob("*.pth")
        if path.name not in KNOWN and re.search(r"^(?:import|exec)\b", path.read_text(errors="ignore"), re.M)
    ]


def test_nothing_installed_runs_at_every_start_of_python() -> None:
    assert [name for folder in site.getsitepackages() for name in check_pth(Path(folder))] == []


def test_red_a_planted_pth_is_found(tmp_path: Path) -> None:
    (tmp_path / "litellm_init.pth").write_text("import os, subprocess; subprocess.Popen(['true'])\n")
    (tmp_path / "plain.pth").write_text("src\n")
    assert check_pth(tmp_path) == ["litellm_init.pth"]


def named(text: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\s;<>=!~\[]", text.strip(), maxsplit=1)[0]).lower()


def check_pins(constraints: str, needed: set[str]) -> list[str]:
    """Lines that are no exact pin, packages that have none, packages that we never want."""
    lines = [line.split("#")[0].strip() for line in constraints.splitlines()]
    lines = [line for line in lines if line]
    loose = [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][\w.+!-]*", line)]
    pinned = {named(line) for line in lines}
    return [*loose, *sorted(needed - pinned), *sorted(pinned & {"litellm", "picklescan"})]


def closure(name: str, extras: set[str]) -> set[str]:
    """Every package that an installation of `name` brings, of those that are installed here."""
    from packaging.requirements import Requirement

    seen: set[tuple[str, str]] = set()
    todo = [(name, extra) for extra in ("", *extras)]
    while todo:
        package, extra = todo.pop()
        if (package, extra) in seen:
            continue
        seen.add((package, extra))
        try:
            requirements = metadata.requires(package) or []
        except metadata.PackageNotFoundError:
            continue
        for text in requirements:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                todo += [(named(need.name), inner) for inner in ("", *need.extras)]
    installed = {named(dist.metadata["Name"]) for dist in metadata.distributions()}
    return {package for package, _ in seen} & installed - {named(name)}


def test_everything_that_an_installation_brings_is_pinned() -> None:
    needed = closure("medloop", {"train", "api", "ops", "parquet", "quant"})
    assert len(needed) > 40
    assert check_pins((ROOT / "constraints.txt").read_text(encoding="utf-8"), needed) == []


def test_red_loose_missing_and_unwanted_pins_are_found() -> None:
    assert check_pins("a==1.0\nb>=2\nlitellm==1.82.7\n", {"a", "c"}) == ["b>=2", "c", "litellm"]
    assert not {named(dist.metadata["Name"]) for dist in metadata.distributions()} & {"litellm"}
