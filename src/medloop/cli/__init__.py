"""`medloop <stage> <verb>`: parse, call, print. One file per stage.

A failure that a person can cause is one sentence on stderr and an exit code; `--debug` shows the traceback.
"""

import importlib
import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from medloop import __version__
from medloop.errors import MedloopError, explain_os_error

# Every command with its file in this folder and its line in `medloop --help`. A file is imported when its command is used, so
# `medloop --help` is fast although files import what they need at their top.
COMMANDS = {
    "demo": ("demo", "Run the whole loop on built-in defaults: no key, no GPU, no network."),
    "init": ("workspace", "Create a workspace: folders, settings, an encryption key, an empty database."),
    "config": ("workspace", "Show the settings and where each value comes from."),
    "data": ("data", "Import, clean, split and describe data; build datasets from feedback."),
    "feedback": ("feedback", "Feedback metrics, the review queue, and the retrain trigger."),
    "annotate": ("annotate", "Send answers to annotators in Label Studio, and read their annotations."),
    "incidents": ("incidents", "List and read safety incidents; close them with a second person."),
    "quarantine": ("quarantine", "Review records that may still identify a person."),
    "consent": ("consent", "Grant, withdraw and show consent by subject and purpose."),
    "erase": ("erase", "Erase a person's records and every copy of them, with proof."),
    "privacy": ("privacy", "Find and remove identifiers of patients and staff."),
    "codebook": ("codebook", "Rules that correct the assistant at once: propose, try, approve, retire."),
    "rubric": ("rubric", "Criteria from corrections, so that a mistake cannot return unseen."),
    "teacher": ("teacher", "Let a stronger model judge answers, within a budget."),
    "reward": ("reward", "Score answers with rules and models, and explain each score."),
    "train": ("train", "Train with SFT, a reward model, DPO, KTO, PPO, GRPO or IRS."),
    "serve": ("serve", "Serve a model and its adapters over HTTP, as OpenAI and vLLM do."),
    "predict": ("predict", "Answer every question in a file."), "eval": ("eval", "Compare models on held-out questions."),
    "gate": ("gate", "Decide whether a model may be promoted; sign verdicts, waive checks."),
    "registry": ("registry", "Versions of the model: promote one, roll back, verify the copies in MLflow."),
    "experiment": ("experiment", "Compare champion and challenger on live traffic; guards stop harm."),
    "deploy": ("deploy", "Bring the champion live on the model servers; see, check and clear what is deployed."),
    "rollback": ("deploy", "Let an earlier version answer at once."),
    "inspect": ("inspect", "Draw this week's answers for a medical reviewer; import the verdicts."),
    "rounds": ("rounds", "Rounds of RL: list them, accept one, go back to SFT or an earlier one."),
    "release": ("release", "Release a model that the gate let pass, with its safety ledger; verify a release."),
    "loop": ("loop", "Run the loop from feedback to a promoted version; see what it waits for."),
    "lineage": ("lineage", "Show what contains a record, and which records are behind a model."),
    "knowledge": ("knowledge", "Documents that the assistant may cite: add, list, search, check, remove."),
    "jobs": ("jobs", "Run training in the background: submit, watch, cancel, resume."),
    "api": ("api", "Serve the HTTP API and the web pages; manage API keys."),
    "playground": ("playground", "Try versions side by side on a page of this machine."),
    "telemetry": ("telemetry", "Send traces and feedback to Langfuse or an OpenTelemetry collector."),
    "users": ("users", "Add, disable and manage users."),
    "site": ("site", "Sites with their own users, rules and experiments in one store."),
    "db": ("store", "Upgrade and check the database."),
    "keys": ("store", "List and rotate the encryption keys."), "audit": ("store", "Show and verify the audit log."),
    "backup": ("backup", "Back up the workspace while it is in use; list and verify backups."),
    "restore": ("backup", "Make a workspace from a backup."),
    "embedded": ("embedded", "The built-in model: its corpus, its recipe, sample answers."),
    "completion": ("completion", "Complete commands and options with TAB in bash, zsh or fish."),
}  # fmt: skip


class _Commands(dict[str, Any]):
    """The commands by name; each is imported when it is first looked up."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            loaded = typer.Typer(rich_markup_mode=None)
            importlib.import_module(f"medloop.cli.{COMMANDS[name][0]}").register(loaded)
            self.update(typer.main.get_group(loaded).commands)
            _prepare_command(super().__getitem__(name))
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def items(self) -> Any:
        return [(name, self[name]) for name in self]

    def values(self) -> Any:
        return [self[name] for name in self]


def _prepare_command(command: Any) -> None:
    """Where one of a few words is allowed, `--role Clinician` is as good as `--role clinician`; lists of commands show whole
    sentences instead of their beginnings."""
    command.short_help = " ".join((command.help or "").partition("\n\n")[0].split())
    for param in command.params:
        if descriptor := getattr(param, "type_descriptor", None):
            descriptor.parameter_info.case_sensitive = False
    for inner in getattr(command, "commands", {}).values():
        _prepare_command(inner)


class _LazyGroup(typer.core.TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _Commands()

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:  # typer converts values with pydantic and repeats its words
            from medloop.knobs import problem_text  # pydantic, which `medloop --help` does without

            for problem in getattr(error.__cause__, "errors", list)()[:1]:
                value = "" if problem["type"] == "value_error" else f", not {problem['input']!r}"
                error.message = problem_text(problem) + value
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = typer.Typer(
    cls=_LazyGroup, name="medloop", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]},
    help="The closed loop that turns feedback on a medical LLM assistant into a better, safer assistant.",
    epilog="Example:  medloop init clinic && cd clinic && medloop data import FILE && medloop data prepare",
)  # fmt: skip


def _print_version(show: bool) -> None:
    if show:
        typer.echo(f"medloop {__version__}")
        raise typer.Exit


@app.callback()
def _global(
    home: Annotated[
        Path | None, typer.Option(help="Workspace folder (default: MEDLOOP_HOME, then the nearest medloop.yaml).")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Override one workspace setting; may be repeated."),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    from medloop.cli import ui  # loads rich and pydantic, which `medloop --help` does without

    ui.remember_flags(home, set_ or [])


def main() -> None:
    """The console script: an error that a person can fix becomes one sentence, a bug keeps its traceback."""
    debug = "--debug" in sys.argv[1:]
    os.umask(0o077)  # what medloop writes may hold patients' words, also where a library writes it
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old terminal shows ? instead of failing
    try:
        app()
    except MedloopError as error:
        if debug:
            raise
        typer.echo(f"medloop: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if debug or error.errno is None:
            raise
        mapped = explain_os_error(error, str(error.filename or "the workspace"))
        typer.echo(f"medloop: {mapped}", err=True)
        sys.exit(mapped.exit_code)
    except KeyboardInterrupt:
        typer.echo("medloop: stopped.", err=True)
        sys.exit(130)
