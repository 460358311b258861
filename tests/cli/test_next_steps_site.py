"""What `medloop site` tells people to run next can be run."""

from typer.testing import CliRunner

from medloop.cli import app
from medloop.loop.workspace import init_workspace


def test_the_next_steps_of_sites_run(workspace) -> None:
    init_workspace(workspace)

    def medloop(*words: str) -> str:
        result = CliRunner().invoke(app, ["--home", str(workspace), *words])
        assert result.exit_code == 0, result.output
        return result.output

    assert "site assign NAME SITE" in medloop("site", "list")
    medloop("users", "add", "dr.li", "--role", "clinician", "--no-password")
    medloop("api", "keys", "new", "dr.li")
    assert "api keys new dr.li" in medloop("site", "assign", "dr.li", "ward-7")
    medloop("api", "keys", "new", "dr.li")
    assert "ward-7" in medloop("site", "list")
    assert "clinician at ward-7" in medloop("users", "list")
