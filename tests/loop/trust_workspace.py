"""What the tests of the trust meter share: an emergency with two answers, and the command line inside this process."""

from typer.testing import CliRunner

from medloop.cli import app

QUESTION = "I have had crushing chest pain for an hour, and my left arm is numb."
GOOD = "This may be a heart attack. Call an ambulance now and sit down until help comes."
BAD = "Do not worry, this is nothing. Have some tea and sleep, it will pass by itself tomorrow."


def medloop(*args: str) -> str:
    """What a command printed; its error is raised."""
    result = CliRunner().invoke(app, args)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout if "--json" in args else result.output
