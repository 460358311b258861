"""The one progress bar and the one table."""

import pytest

from medloop.cli import ui


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(ui, "time", clock)
    return clock


def test_without_a_terminal_a_long_step_prints_a_line_at_each_tenth(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ui.progress("Training", 40) as bar:
        for step in range(1, 41):
            clock.now += 1
            bar.update(step, text=f"loss {1 / step:.2f}")
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 10
    assert lines[0] == "Training: 4 of 40 (10%)  loss 0.25" and lines[-1] == "Training: 40 of 40 (100%)  loss 0.03"


def test_a_step_of_a_moment_prints_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ui.progress("Reading", 100) as advance:
        for _ in range(100):
            clock.now += 0.01
            advance(1)
    assert capsys.readouterr().err == ""


def test_a_slow_step_prints_once_a_minute_even_with_no_total(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ui.progress("Judging") as bar:
        for done in range(1, 301):
            clock.now += 1
            bar.update(done)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5 and lines[0] == "Judging: 60"


def test_slow_answers_print_a_line_every_ten_seconds_also_while_the_count_stands_still(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with ui.progress("Answering", every=10) as bar:
        for _ in range(30):
            clock.now += 1
            bar.update(16, 88, "SmolLM2")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["Answering: 16 of 88 (18%)  SmolLM2"] + [
        f"Answering: 16 of 88 (18%), {seconds} s so far  SmolLM2" for seconds in (12, 22)
    ]


def test_a_table_in_a_pipe_keeps_every_cell_on_one_line_and_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    ui.table(("id", "words"), [("sub_" + "a" * 100, "word " * 60), ("[red]\x1b[31m", "发热")])
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.split() == ["id", "words"] and first.count("word") == 60
    assert "[red]" in second and "\x1b" not in second and "发热" in second
