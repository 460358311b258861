"""Images and compose files without an engine: what they copy is there and is sent, what they start starts, nothing runs as root."""

import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
DOCKER = ROOT / "docker"
IMAGES = sorted(DOCKER.glob("Dockerfile*"))
COMPOSE = sorted(DOCKER.glob("docker-compose*.yml"))
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "USER", "VOLUME", "WORKDIR"}
SERVICE_KEYS = {
    *{"build", "image", "init", "restart", "stop_grace_period", "cap_drop", "cap_add", "security_opt", "environment", "ports"},
    *{"volumes", "network_mode", "depends_on", "deploy"},
}


def instructions(path: Path) -> list[tuple[str, str]]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def copied(path: Path) -> list[str]:
    words = [[word for word in rest.split() if not word.startswith("--")] for name, rest in instructions(path) if name == "COPY"]
    return [source for line in words for source in line[:-1]]


def is_sent(name: str) -> bool:
    """The last pattern of .dockerignore that fits decides, as in Docker."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!").strip()
        if pattern and not pattern.startswith("#"):
            parents = {"/".join(name.split("/")[: depth + 1]) for depth in range(len(name.split("/")))}
            if any(fnmatch.fnmatch(part, pattern) for part in parents):
                sent = line.startswith("!")
    return sent


def merged(*files: str) -> dict[str, dict[str, object]]:
    services: dict[str, dict[str, object]] = {}
    for name in files:
        for service, settings in yaml.safe_load((DOCKER / name).read_text(encoding="utf-8"))["services"].items():
            services.setdefault(service, {}).update(settings)
    return services


@pytest.mark.parametrize("path", IMAGES, ids=lambda p: p.name)
def test_an_image_copies_what_is_there_and_runs_without_root(path: Path) -> None:
    steps = instructions(path)
    names = [name for name, _ in steps]
    assert set(names) <= INSTRUCTIONS
    assert names[:2] == ["ARG", "FROM"] and re.fullmatch(r"BASE=\S+:(?!latest)\S+", steps[0][1])
    for source in copied(path):
        assert (ROOT / source).exists() and is_sent(source), source
    assert [rest for name, rest in steps if name == "USER"][-1] == "medloop"
    for name, rest in steps:
        if name in {"CMD", "ENTRYPOINT"}:
            assert rest.startswith("["), "a shell would not pass on the signal that stops the server"
        if name == "RUN" and "apt-get" in rest:
            assert "rm -rf /var/lib/apt/lists/*" in rest and "--no-install-recommends" in rest
        assert not re.search(r"(?i)password|secret|token|curl|wget|chmod 777|sudo", rest)


def test_the_images_install_alike() -> None:
    assert len({tuple(copied(path)) for path in IMAGES}) == 1
    assert all("make setup PYTHON=" in path.read_text(encoding="utf-8") for path in IMAGES)


def test_workspaces_keys_and_environments_are_not_sent() -> None:
    for name in (
        ".venv/bin/python",
        ".git/config",
        "demo/medloop.yaml",
        "build/x",
        ".env",
        "shared/data",
        "tests/conftest.py",
        "src/medloop/x.so",
    ):
        assert not is_sent(name), name
    assert is_sent("src/medloop/cli/__init__.py")


@pytest.mark.parametrize("path", COMPOSE, ids=lambda p: p.name)
def test_a_compose_file_names_what_is_there(path: Path) -> None:
    whole = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert set(whole) <= {"name", "services", "volumes"}
    for settings in whole["services"].values():
        assert set(settings) <= SERVICE_KEYS
        if "build" in settings:
            assert (DOCKER / settings["build"]["context"]).resolve() == ROOT
            assert (ROOT / settings["build"]["dockerfile"]).is_file()
        if "image" in settings:
            assert re.search(r":[\d.]+", settings["image"])
        for volume in settings.get("volumes", []):
            source = volume.split(":")[0]
            assert (DOCKER / source).exists() if source.startswith(".") else source in whole["volumes"]


@pytest.mark.parametrize("kind", ["gpu", "unsloth"])
def test_an_override_changes_the_backend_alone(kind: str) -> None:
    services = merged("docker-compose.yml", f"docker-compose.{kind}.yml")
    assert set(services) == {"backend", "proxy"}
    assert services["backend"]["build"] == {"context": "..", "dockerfile": f"docker/Dockerfile.{kind}"}
    assert services["backend"]["cap_drop"] == ["ALL"]


def test_the_server_is_reached_through_the_proxy_alone() -> None:
    services = merged("docker-compose.yml")
    assert services["proxy"]["network_mode"] == "service:backend"
    assert services["backend"]["ports"] == ["${MEDLOOP_BIND:-127.0.0.1}:8443:8443"]
    assert "reverse_proxy 127.0.0.1:8000" in (DOCKER / "Caddyfile").read_text(encoding="utf-8")


def test_what_is_copied_is_enough_to_install(tmp_path: Path) -> None:
    for source in copied(DOCKER / "Dockerfile"):
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(ROOT / source, target)
    subprocess.run(["make", "-n", "setup"], cwd=tmp_path, check=True, capture_output=True)
    checked = subprocess.run([sys.executable, "tools/lock.py", "--check"], cwd=tmp_path, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_the_image_starts_with_a_workspace_of_its_own_and_is_healthy(tmp_path: Path) -> None:
    """The entry point and the health check as they stand, with the environment of the tests in place of the image's."""
    home = tmp_path / "data"
    env = {**os.environ, "MEDLOOP_HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["sh", str(DOCKER / "entrypoint.sh")]
    with subprocess.Popen(
        [*command, "api", "serve", "--port", "0"], env=env, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as server:
        assert server.stdout is not None
        port = next(m[1] for line in server.stdout if (m := re.search(r"Serving http://127.0.0.1:(\d+)", line)))
        check = next(rest for name, rest in instructions(DOCKER / "Dockerfile") if name == "HEALTHCHECK")
        code = yaml.safe_load(check.partition("CMD ")[2])[2].replace(":8000/", f":{port}/").replace("timeout=4", "timeout=60")
        subprocess.run([sys.executable, "-c", code], check=True)
        server.send_signal(signal.SIGTERM)
        server.stdout.read()
    assert server.returncode in {0, -signal.SIGTERM}
    assert (home / "medloop.yaml").is_file()
    again = subprocess.run([*command, "users", "list"], env=env, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "admin" in again.stdout and "is ready" not in again.stdout  # the second start finds the workspace of the first
