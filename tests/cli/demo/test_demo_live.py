"""The live part of the demo: its canaries are the first held-out questions of each kind, in the file that the settings name."""

from pathlib import Path

from medloop.cli.demo.asking import show_answer
from medloop.cli.demo.live import CANARIES, write_canaries
from medloop.deploy.canary import load_canaries
from medloop.loop.workspace import init_workspace
from medloop.settings import resolve
from medloop.store.files import jsonl
from medloop.testing.records import make_emergencies, make_record


def test_the_canaries_of_the_demo_are_its_own_held_out_questions(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    init_workspace(home)
    routine = [make_record(n, f"Question {n}?", language=language) for n, language in enumerate(("zh", "en", "other", "en"))]
    jsonl.write(home / "data/processed/gold_set.jsonl", [*routine, *make_emergencies(4)])
    for _ in range(2):  # a second demo changes nothing
        write_canaries(home)
        before = (home / "medloop.yaml").read_bytes()
    assert (home / "medloop.yaml").read_bytes() == before
    settings = resolve({"home": home}, environ={}).settings
    assert str(settings.deploy.canaries) == CANARIES
    canaries = load_canaries(home / CANARIES)
    assert sorted((canary.language, canary.expect) for canary in canaries) == [
        ("en", "answer"), ("en", "urgent"), ("zh", "answer"), ("zh", "urgent"),
    ]  # fmt: skip


def test_an_answer_is_shown_with_its_version(capsys) -> None:
    about = {"version": "med-assistant@1", "snapshot": "sha256:" + "0" * 64, "inference_id": "abc"}
    show_answer("routine, en", "Why?", {"choices": [{"message": {"content": "Rest.\n\nDrink."}}], "medloop": about})
    out = capsys.readouterr().out
    assert "answered  Rest. Drink." in out and "med-assistant@1" in out and "inference abc" in out
