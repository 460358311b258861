"""`medloop completion`: a script that completes commands and options. It is pure shell, so TAB starts no Python."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from medloop.cli import ui

HEADER = "# Completes medloop; made by 'medloop completion {shell}'."
# Each script walks the words before the cursor, as long as they name a command, and offers what may follow.
BASH = """{header}
_medloop() {{
    local line="medloop" word words=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$line $word" in
            {commands}) line="$line $word" ;;
        esac
    done
    case "$line" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _medloop medloop
"""
ZSH = """#compdef medloop
{header}
_medloop() {{
    local line="medloop" word
    local -a names
    for word in ${{words[2,CURRENT-1]}}; do
        case "$line $word" in
            {commands}) line="$line $word" ;;
        esac
    done
    case "$line" in
{cases}
    esac
    compadd -- $names
    _files
}}
compdef _medloop medloop
"""
FISH = """{header}
function __medloop_line
    set -l line medloop
    for word in (commandline -opc)[2..]
        switch "$line $word"
            case {commands}
                set line "$line $word"
        end
    end
    test "$line" = "$argv"
end
{cases}
"""


def register(app: typer.Typer) -> None:
    app.command("completion")(completion)


def completion(
    ctx: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a script for your shell that completes commands and options with TAB.

    bash: put it into ~/.local/share/bash-completion/completions/medloop. zsh: into a folder of $fpath, as _medloop.
    fish: into ~/.config/fish/completions/medloop.fish. Or load it for this session, as below.

    Example:  source <(medloop completion bash)
    """
    words = dict(_words(ctx.find_root().command, ("medloop",)))
    commands = [path for path in words if path != "medloop"]
    if shell == "fish":
        cases = (f"complete -c medloop -n '__medloop_line {path}' -a '{' '.join(names)}'" for path, names in words.items())
        ui.say(FISH.format(header=HEADER.format(shell=shell), commands=" ".join(map(repr, commands)), cases="\n".join(cases)))
        return
    name, script = ("words", BASH) if shell == "bash" else ("names", ZSH)
    quote = '"{}"' if shell == "bash" else "({})"
    cases = (f'        "{path}") {name}={quote.format(" ".join(names))} ;;' for path, names in words.items())
    pattern = "|".join(f'"{path}"' for path in commands)
    ui.say(script.format(header=HEADER.format(shell=shell), commands=pattern, cases="\n".join(cases)))


def _words(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """For the command itself and every command below it: what may follow it."""
    inner = getattr(command, "commands", {})
    options = [name for param in command.params for name in (*param.opts, *param.secondary_opts) if name.startswith("--")]
    yield " ".join(path), [*inner, *options, "--help"]
    for name, below in inner.items():
        yield from _words(below, (*path, name))
