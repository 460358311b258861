"""Classes 1 to 6: paths in names, files that are written, archives, pickles, code that comes with a model."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
import twins
from payloads import CANARY, traversal
from sec_world import World, client_of, opened_files

from medloop.errors import ModelError
from medloop.jobs import queue, requests
from medloop.jobs.job_row import StateError
from medloop.jobs.worker import work
from medloop.models.safety import check_folder

SRC = Path(__file__).parents[2] / "src/medloop"
SEALED = Path(str(SRC / "assets/tiny"))

# Every field of a request that names a file, a folder or a model; {} is the payload.
FIELDS = ["prompts", "held_out", "reward", "adapter", "replay_data", "dw"]
READS: dict[str, tuple[str, str, dict | None]] = {
    **{f"train {name}": ("POST", "/api/train", {"stage": "IRS", "config": {name: "{}"}}) for name in FIELDS},
    **{f"given {name}": ("POST", "/api/train", {"stage": "GRPO", "config": {"given": {name: "{}"}}}) for name in requests.GIVEN},
    "train data": ("POST", "/api/train", {"stage": "SFT", "config": {"data": "{}"}}),
    "pairs": ("POST", "/api/train", {"stage": "DPO", "config": {"data": "{}"}}),
    "model": ("POST", "/api/train", {"stage": "GRPO", "model_id": "{}"}),
    "embedded model": ("POST", "/api/train", {"stage": "GRPO", "model_id": "embedded:{}"}),
    "job": ("GET", "/api/train/status/{}", None),
    "metrics of a job": ("GET", "/api/train/{}/metrics", None),
    "next job": ("GET", "/api/train?after={}", None),
    "static file": ("GET", "/web/static/{}", None),
    "language": ("GET", "/web/language/{}", None),
    "record": ("GET", "/api/v1/rlhf/feedback/{}", None),
    "export": ("GET", "/api/v1/rlhf/export?kind={}", None),
}


def filled(value, text: str):
    if isinstance(value, dict):
        return {name: filled(item, text) for name, item in value.items()}
    return value.replace("{}", text) if isinstance(value, str) else value


def leaves(text: str, home: Path) -> bool:
    """Whether a name, taken at its word, leads out of the workspace."""
    reached = os.path.normpath(home / Path(text.replace("\0", "")))
    return "://" in text or not reached.startswith(str(home))


def check_reading(ask: Callable[[str], object], outside: Path, payloads: list[str]) -> list[str]:
    """Payloads by which something of the folder outside was opened, or its canary came back."""
    problems = []
    for text in payloads:
        with opened_files() as opened:
            answered = ask(text)
        reached = [path for path in opened if os.path.realpath(path).startswith(str(outside)) or path.startswith("/etc/passwd")]
        if reached or CANARY in getattr(answered, "text", "") or getattr(answered, "status_code", 0) == 500:
            problems.append(text)
    return problems


@pytest.fixture
def queued_jobs(monkeypatch) -> list[str]:
    """Jobs that would have been queued; none is."""
    seen: list[str] = []

    def refuse(temp: Path, home: Path, request, *more) -> str:
        seen.append(request.canonical_json())
        shutil.rmtree(temp)
        raise StateError("taken", "x")

    monkeypatch.setattr(queue, "_publish", refuse)
    return seen


@pytest.mark.parametrize("field", READS)
def test_no_name_in_a_request_reaches_a_file_outside(world: World, queued_jobs: list[str], monkeypatch, field: str) -> None:
    monkeypatch.chdir(world.outside)  # where the server was started must not matter
    method, path, body = READS[field]
    target = world.outside / ("model" if "model" in field else "secret.jsonl")

    def ask(text: str):
        more = {} if body is None else {"json": filled(body, text)}
        return world.send("engineer", method, path.replace("{}", quote(text, safe="/%")), **more)

    payloads = [*traversal(target), target.name, f"./{target.name}", "../" * 12 + str(target)[1:]]
    assert len(payloads) >= 60
    assert check_reading(ask, world.outside, payloads) == []
    named = [json.loads(job) for job in queued_jobs]
    assert not [job for job in named for text in _texts(job) if leaves(text.removeprefix("embedded:"), world.settings.home)], (
        "a job was taken with a name that leads out"
    )


def _texts(value) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def test_red_a_twin_that_reads_what_it_is_told_is_found(world: World) -> None:
    with client_of(twins.files(world.settings.home)) as client:
        problems = check_reading(
            lambda text: client.post("/read", json={"name": text}), world.outside, traversal(world.outside / "secret.jsonl")
        )
    assert len(problems) >= 10


def test_red_our_own_door_without_its_check_is_found(world: World, queued_jobs: list[str], monkeypatch) -> None:
    monkeypatch.setattr(requests, "check_remote", lambda request, settings: None)
    for text in traversal(world.outside / "secret.jsonl"):
        world.send("engineer", "POST", "/api/train", json={"stage": "GRPO", "config": {"prompts": text}})
    assert len(queued_jobs) >= 3
    embedded = {"stage": "GRPO", "model_id": f"embedded:{'../' * 12}{str(world.outside)[1:]}/model"}
    assert check_reading(lambda _: world.send("engineer", "POST", "/api/train", json=embedded), world.outside, [""]) == [""]


def check_writing(ask: Callable[[str], object], root: Path, payloads: list[str]) -> set[str]:
    """Files outside `root` that are there or changed afterwards."""

    def look() -> dict[str, bytes]:
        near = [path for path in root.parent.rglob("*") if path.is_file() and root not in path.parents]
        return {str(path): path.read_bytes() for path in near}

    before = look()
    for text in payloads:
        ask(text)
    after = look()
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    for path in changed:
        if path in before:
            Path(path).write_bytes(before[path])
        else:
            Path(path).unlink()
    return changed


WRITES = {
    "dataset": ("engineer", "/api/v1/data/build", lambda text: {"json": {"name": text}}),
    "result of a job": ("engineer", "/api/train", lambda text: {"json": {"stage": "GRPO", "config": {"name": text}}}),
    "user": ("admin", "/web/users", lambda text: {"data": {"name": text, "role": "clinician"}}),
    "consent": (
        "admin",
        "/api/v1/consent",
        lambda text: {"json": {"subject": text, "purposes": ["training"], "text_version": text}},
    ),
}


@pytest.mark.parametrize("field", WRITES)
def test_no_name_in_a_request_becomes_a_file_outside(world: World, queued_jobs: list[str], field: str) -> None:
    who, path, body = WRITES[field]
    payloads = [text for text in traversal(world.outside / "owned.jsonl") if text]
    assert check_writing(lambda text: world.send(who, "POST", path, **body(text)), world.settings.home, payloads) == set()
    for job in queued_jobs:
        assert "/" not in json.loads(job)["config"]["name"]


def test_a_good_name_is_taken_so_the_bad_ones_were_refused_for_their_name(world: World) -> None:
    filed = world.send("engineer", "POST", "/api/v1/data/build", json={"name": "week46"})
    assert filed.status_code == 202 and work(filed.json()["job_id"], world.settings).state == "succeeded"
    assert world.send("engineer", "POST", "/api/v1/data/build", json={"name": "../week46"}).status_code == 422
    assert (world.settings.home / "data/feedback/week46/card.json").is_file()


def test_red_a_twin_that_writes_where_it_is_told_is_found(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (tmp_path / "outside").mkdir()
    root.mkdir()
    with client_of(twins.files(root)) as client:
        payloads = traversal(tmp_path / "outside/owned.jsonl")
        assert check_writing(lambda text: client.post("/write", json={"name": text}), root, payloads)


# Class 3: nothing here unpacks an archive, and it stays so.

UNPACKS = {"tarfile", "zipfile", "zipimport", "py7zr", "rarfile", "patoolib", "libarchive"}


def check_archives(source: str) -> list[str]:
    """Imports and calls that unpack archives."""
    tree = ast.parse(source)
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [name for name in names if name.split(".")[0] in UNPACKS] + [
        c for c in calls if c.endswith(("unpack_archive", "extractall"))
    ]


def test_nothing_in_medloop_unpacks_archives() -> None:
    assert [
        (path.name, problems) for path in SRC.rglob("*.py") if (problems := check_archives(path.read_text(encoding="utf-8")))
    ] == []


@pytest.mark.parametrize(
    "source", ["import tarfile", "from zipfile import ZipFile", "shutil.unpack_archive(p)", "t.extractall(p)"]
)
def test_red_code_that_unpacks_is_found(source: str) -> None:
    assert check_archives(source)


def test_an_archive_sent_as_an_import_is_one_bad_line(world: World, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        archive.add(world.outside, arcname="../../outside")
    kind = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    body = (tmp_path / "x.tar.gz").read_bytes()
    answered = world.send("engineer", "POST", "/api/v1/rlhf/import", content=body, headers=kind)
    assert answered.status_code == 422 or answered.json()["stored"] == 0


# Classes 4, 5 and 6: what lies in a model folder.

ENDINGS = (
    ".bin", ".pt", ".pth", ".pkl", ".ckpt", ".npy", ".h5", ".msgpack", ".joblib", ".onnx", ".gguf", ".keras", ".py", ".pyc", ".so", ".zip", "",
    ".safetensors", ".BIN", ".dat",
)  # fmt: skip


class Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def check_pickles(open_folder: Callable[[Path], None], tmp_path: Path) -> list[str]:
    """Endings under which a planted pickle was taken, or even ran."""
    problems = []
    for n, ending in enumerate(ENDINGS):
        folder, ran = tmp_path / f"m{n}", tmp_path / f"ran{n}"
        shutil.copytree(SEALED, folder)
        (folder / f"extra{ending}").write_bytes(pickle.dumps(Canary(ran)))
        try:
            open_folder(folder)
        except (ModelError, ValueError):
            if not ran.exists():
                continue
        problems.append(ending)
    return problems


def test_a_pickle_under_any_name_refuses_the_folder(tmp_path: Path) -> None:
    check_folder(SEALED)  # and without it the same folder is fine
    assert check_pickles(check_folder, tmp_path) == []


def test_red_a_twin_with_a_list_of_bad_names_is_found(tmp_path: Path) -> None:
    problems = check_pickles(twins.load_anything, tmp_path)
    assert {".pt", ".BIN", ".safetensors", ".dat", ""} <= set(problems)


CODE = {"auto_map": {"AutoModelForCausalLM": "evil.Model"}}
PLACES = [
    ("config.json", CODE), ("tokenizer_config.json", CODE), ("generation_config.json", CODE), ("processor_config.json", CODE),
    ("preprocessor_config.json", CODE), ("config.json", {"text_config": CODE}), ("config.json", {"a": [{"b": CODE}]}), ("adapter_config.json", CODE),
]  # fmt: skip


def check_remote_code(open_folder: Callable[[Path], None], tmp_path: Path) -> list[str]:
    problems = []
    for n, (name, planted) in enumerate(PLACES):
        folder = tmp_path / f"m{n}"
        shutil.copytree(SEALED, folder)
        before = json.loads((folder / name).read_text()) if (folder / name).is_file() else {}
        (folder / name).write_text(json.dumps(before | planted))
        try:
            open_folder(folder)
        except (ModelError, ValueError):
            continue
        problems.append(f"{name} {n}")
    return problems


def test_a_model_that_asks_for_its_own_code_is_refused_wherever_it_asks(tmp_path: Path) -> None:
    assert check_remote_code(check_folder, tmp_path) == []


def test_red_a_twin_that_looks_in_one_place_is_found(tmp_path: Path) -> None:
    assert len(check_remote_code(twins.looks_for_auto_map, tmp_path)) >= 5


BANNED = {"torch.load", "pickle.load", "pickle.loads", "joblib.load", "dill.load", "yaml.load", "eval", "exec", "marshal.loads"}


def check_loading(source: str) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    trusting = [
        key for call in calls for key in call.keywords if key.arg == "trust_remote_code" and ast.unparse(key.value) != "False"
    ]
    return [name for call in calls if (name := ast.unparse(call.func)) in BANNED] + ["trust_remote_code"] * len(trusting)


def test_nothing_in_medloop_loads_what_can_run() -> None:
    assert [
        (path.name, problems) for path in SRC.rglob("*.py") if (problems := check_loading(path.read_text(encoding="utf-8")))
    ] == []


@pytest.mark.parametrize("source", ["torch.load(p)", "yaml.load(t)", "eval(t)", "M.from_pretrained(p, trust_remote_code=yes)"])
def test_red_code_that_loads_what_can_run_is_found(source: str) -> None:
    assert check_loading(source)
