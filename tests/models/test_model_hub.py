"""A hub on this machine: only safe files are fetched, and what was fetched works without it."""

import hashlib
import http.server
import json
import shutil
import threading
from pathlib import Path

import huggingface_hub.constants
import pytest

from medloop.contracts import ModelRef
from medloop.errors import ModelError
from medloop.models.find import resolve
from medloop.models.load import load

COMMIT = "a" * 40


class Hub(http.server.ThreadingHTTPServer):
    """Serves one folder as org/model; remembers which files were asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.folder, self.requested = folder, []


class Page(http.server.BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        files = sorted(self.server.folder.iterdir())
        if path.startswith("/org/model/resolve/"):
            name = path.split("/")[-1]
            self.server.requested.append(name)
            self.answer((self.server.folder / name).read_bytes())
        elif path.startswith("/api/models/org/model/tree/"):
            self.answer(
                json.dumps([{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "b" * 40} for f in files]).encode()
            )
        elif path in ("/api/models/org/model", "/api/models/org/model/revision/main"):
            siblings = [{"rfilename": f.name} for f in files]
            self.answer(
                json.dumps({"id": "org/model", "sha": COMMIT, "private": False, "tags": [], "siblings": siblings}).encode()
            )
        elif path.startswith("/api/models/org/model/"):
            self.answer(b"{}", status=404, code="RevisionNotFound")
        elif "gated" in path:
            self.answer(b"{}", status=403, code="GatedRepo")
        else:
            self.answer(b"{}", status=404, code="RepoNotFound")

    def answer(self, body: bytes, status: int = 200, code: str = "") -> None:
        self.send_response(status)
        headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Repo-Commit": COMMIT, "Content-Length": str(len(body))}
        for name, value in {**headers, **({"X-Error-Code": code} if code else {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def hub(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    server = Hub(Path(shutil.copytree(base, tmp_path / "served")))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
    monkeypatch.setattr(
        huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def online(settings):
    return settings.model_copy(update={"offline": False})


def test_only_safe_files_are_fetched(hub: Hub, online):
    for name in ("pytorch_model.bin", "evil.py", "model.onnx"):
        (hub.folder / name).write_bytes(b"x")
    loaded = load(ModelRef(base="org/model"), online)
    assert loaded.name == "org/model"
    assert not {"pytorch_model.bin", "evil.py", "model.onnx"} & set(hub.requested) and "model.safetensors" in hub.requested


@pytest.mark.parametrize("name", ["org/model", "org/model@main"])
def test_what_was_fetched_works_without_the_hub(hub: Hub, online, settings, name: str):
    first = resolve(ModelRef(base=name), online)
    hub.shutdown()
    assert resolve(ModelRef(base=name), settings).sha256 == first.sha256


def test_a_hub_that_does_not_answer_is_made_up_for_by_the_cache(hub: Hub, online, monkeypatch: pytest.MonkeyPatch):
    first = resolve(ModelRef(base="org/model"), online)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert resolve(ModelRef(base="org/model"), online).sha256 == first.sha256


def test_code_is_refused_before_the_weights_are_fetched(hub: Hub, online):
    config = json.loads((hub.folder / "config.json").read_text())
    (hub.folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "evil.M"}}))
    with pytest.raises(ModelError, match="auto_map"):
        load(ModelRef(base="org/model"), online)
    assert "model.safetensors" not in hub.requested


def test_a_model_with_pickled_weights_only_is_refused(hub: Hub, online):
    (hub.folder / "model.safetensors").rename(hub.folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="no safetensors weights"):
        load(ModelRef(base="org/model"), online)
    assert hub.requested == []


@pytest.mark.parametrize(
    ("name", "message"),
    [("org/nothing", "no model org/nothing"), ("org/gated", "requires a licence"), ("org/model@v9", "no revision v9")],
)
def test_what_the_hub_refuses_is_one_sentence(hub: Hub, online, name: str, message: str):
    with pytest.raises(ModelError, match=message):
        load(ModelRef(base=name), online)


def test_offline_never_asks_the_hub(hub: Hub, settings):
    with pytest.raises(ModelError, match="not on this machine"):
        load(ModelRef(base="org/model"), settings)
    assert hub.requested == []
