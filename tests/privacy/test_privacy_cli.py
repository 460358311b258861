"""`medloop privacy`: cleaned rows out, doubtful ones aside, nothing overwritten, no text in a count."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.errors import InputError
from medloop.privacy.phi import allowed

ROWS = [
    {"id": 1, "text": "患者王芳，手机13800138000", "note": "王芳好转"},
    {"id": 2, "text": "手机一三八零零一三八零零零", "note": ""},
    {"id": 3, "text": "Take aspirin 100 mg.", "note": "ok"},
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS), encoding="utf-8")
    return path


def run(*words: str, given: str | None = None) -> tuple[str, str]:
    done = CliRunner().invoke(app, ["privacy", *words], input=given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def test_rows_come_out_clean_and_doubtful_ones_go_aside(file: Path) -> None:
    out, stderr = run("scrub", str(file), "--report")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["id"] for row in rows] == [1, 3]
    assert rows[0]["text"] == "患者[NAME_1]，手机[PHONE_1]" and rows[0]["note"] == "[NAME_1]好转"
    aside = file.with_name("rows.jsonl.quarantine.jsonl")
    assert json.loads(aside.read_text(encoding="utf-8"))["row"] == ROWS[1]
    assert stat.S_IMODE(aside.stat().st_mode) == 0o600
    assert "3 rows, 1 with identifiers, 1 doubtful" in stderr and "PHONE" in stderr


def test_only_the_named_field_is_touched(file: Path) -> None:
    out, _ = run("scrub", str(file), "--field", "text", "--output", str(file.with_name("clean.jsonl")))
    first = json.loads(file.with_name("clean.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert out == "" and first["note"] == "王芳好转" and "[PHONE_1]" in first["text"]


@pytest.mark.parametrize("name", ["clean.jsonl", "rows.jsonl.quarantine.jsonl"])
def test_no_file_is_overwritten(file: Path, name: str) -> None:
    there = file.with_name(name)
    there.write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="already exists"):
        run("scrub", str(file), "--output", str(file.with_name("clean.jsonl")))
    assert there.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("option", ["--output", "--quarantine"])
def test_no_folder_is_made_for_a_mistyped_path(file: Path, option: str) -> None:
    with pytest.raises(InputError, match="There is no folder"):
        run("scrub", str(file), option, str(file.parent / "nodir/clean.jsonl"))
    assert not (file.parent / "nodir").exists()


def test_check_counts_without_a_word_of_the_text(file: Path) -> None:
    before = sorted(file.parent.iterdir())
    out, _ = run("check", str(file))
    assert "3 rows, 1 with identifiers, 1 doubtful." in out and "NAME" in out
    assert not any(word in out for word in ("王芳", "138", "aspirin")) and sorted(file.parent.iterdir()) == before


def test_plain_text_from_stdin_stays_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out, _ = run("scrub", given="我叫王芳\n")
    assert out == "我叫[NAME_1]\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    assert CliRunner().invoke(app, ["init", str(tmp_path / "ws")]).exit_code == 0
    yield tmp_path / "ws"
    allowed.use(tmp_path / "none")  # other tests run in this process


def test_a_preview_shows_what_goes_and_an_allowed_term_stays(workspace: Path, file: Path) -> None:
    file.write_text('{"text": "Dr. Miller uses the Kowalczyk patch, call 13800138000. The Kowalczyk patch helped."}\n')
    home = ("--home", str(workspace))

    def replaced() -> dict[str, int]:
        done = CliRunner().invoke(app, [*home, "privacy", "preview", str(file), "--json"], catch_exceptions=False)
        return {row["text"]: row["times"] for row in json.loads(done.stdout)["replaced"]}

    before = replaced()
    assert any("Kowalczyk" in text for text in before) and "13800138000" in before
    for term in ("Kowalczyk", "Kowalczyk patch"):
        assert CliRunner().invoke(app, [*home, "privacy", "allow", term], catch_exceptions=False).exit_code == 0
    after = replaced()
    assert not any("Kowalczyk" in text for text in after) and "13800138000" in after and any("Miller" in text for text in after)
    log = CliRunner().invoke(app, [*home, "audit", "show", "--json"], catch_exceptions=False).stdout
    assert log.count("privacy.allow") == 2 and "Kowalczyk" not in log
    CliRunner().invoke(app, [*home, "privacy", "allow", "--remove", "Kowalczyk", "Kowalczyk patch"], catch_exceptions=False)
    assert replaced() == before


def test_a_number_can_never_be_allowed(workspace: Path) -> None:
    with pytest.raises(InputError, match="no digits"):
        CliRunner().invoke(app, ["--home", str(workspace), "privacy", "allow", "13800138000"], catch_exceptions=False)
    assert not (workspace / "allow.txt").exists()
