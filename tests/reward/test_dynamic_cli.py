"""`medloop reward weights`, through the door a user takes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.errors import ConfigError, InputError
from medloop.reward.dynamic import DwConfig, save_state
from medloop.reward.dynamic_plot import replay

PNG = b"\x89PNG\r\n\x1a\n"


def medloop(*args: str) -> str:
    done = CliRunner().invoke(app, ["reward", "weights", *args])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_a_history_is_shown_round_by_round_and_drawn(tmp_path: Path) -> None:
    means = [{"rel": 0.3, "faith": 0.5, "conc": 0.6}, {"rel": 0.5, "conc": 0.6}, {"rel": 0.7, "faith": 0.5}]
    save_state(tmp_path / "dw.json", replay(DwConfig(), means))
    rows = [line.split() for line in medloop(str(tmp_path / "dw.json"), "--plot", str(tmp_path / "w.png")).splitlines()]
    assert rows[1] == ["start", "1.000", "1.000", "0.500"] and rows[3][:4] == ["2", "0.500", "–", "0.600"]
    assert len(rows) == 6 and float(rows[4][4]) < 0.9  # rel rose: its weight fell
    assert (tmp_path / "w.png").read_bytes().startswith(PNG)


def test_the_demo_shows_both_switches_and_only_one_moves(tmp_path: Path) -> None:
    out = medloop("--demo", "--config", str(Path(__file__).parents[2] / "configs/dw.yaml"), "--plot", str(tmp_path / "w.png"))
    normalised, plain = out.split("normalize_slopes: false")
    last = [[float(cell) for cell in part.splitlines()[16].split()[-3:]] for part in (normalised, plain)]
    assert last[0][1] > 1.3 * last[0][0] and last[1][1] < 1.03 * last[1][0]
    assert (tmp_path / "w.png").read_bytes().startswith(PNG)


def test_nothing_is_drawn_when_the_history_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "dw.json").write_text("{}")
    with pytest.raises(InputError, match="not a history of weights"):
        medloop(str(tmp_path / "dw.json"), "--plot", str(tmp_path / "w.png"))
    assert not (tmp_path / "w.png").exists()


@pytest.mark.parametrize("args", [(), ("dw.json", "--demo"), ("dw.json", "--config", "dw.yaml")])
def test_a_history_or_the_demo_and_not_both(args: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        medloop(*args)
