"""Write docs/reference from the code: `make docs`. A test fails when the files differ from what this writes."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import SecretStr

import medloop.contracts as contracts
from medloop.cli import app
from medloop.contracts import Contract
from medloop.lexicon import VERSION
from medloop.lexicon.load import read_list
from medloop.settings import FIELDS, variable


def pages() -> dict[str, str]:
    return {"cli.md": _cli(), "settings.md": _settings(), "contracts.md": _contracts(), "red_flags.md": _red_flags()}


def _cli() -> str:
    lines = [
        "# Commands",
        "",
        "Written by `make docs` from the code. Global flags stand before the command: `medloop --home DIR ...`.",
        "",
    ]
    for path, command in _commands(typer.main.get_command(app), ()):
        lines += [f"## `medloop {' '.join(path)}`", "", *_help(command.help or ""), ""]
        rows = [_parameter(p) for p in command.params if p.name != "help"]
        lines += ["| option | meaning | default |", "|---|---|---|", *rows, ""] if rows else []
    return "\n".join(lines)


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(group, "commands"):
        yield path, group
        return
    for name in sorted(group.commands):
        yield from _commands(group.commands[name], (*path, name))


def _help(text: str) -> list[str]:
    """The docstring, with its example as code."""
    out = []
    for line in text.strip().splitlines():
        word, _, rest = line.strip().partition("Example:")
        out.append(f"```\n{rest.strip()}\n```" if not word and rest else line.strip())
    return out


def _parameter(p: Any) -> str:
    name = f"`{p.opts[0]}`" if p.param_type_name == "option" else f"`{(p.metavar or p.name.upper()).strip(chr(91) + chr(93))}`"
    default = "" if p.default is None or callable(p.default) or p.default == () else f"`{p.default}`"
    return f"| {name} | {_cell(getattr(p, 'help', '') or '')} | {'required' if p.required else default} |"


def _settings() -> str:
    lines = [
        "# Settings",
        "",
        "Written by `make docs`. Each setting has one name, for example `teacher.key`. A flag (`--set teacher.key=…`) beats the",
        "environment (`MEDLOOP_TEACHER__KEY`), which beats `medloop.yaml` (`teacher:` with `key:` below it), which beats the",
        "default. `medloop config show` prints each value and where it comes from.",
        "",
    ]
    lines += ["| setting | environment | meaning | default |", "|---|---|---|---|"]
    for name, field in FIELDS.items():
        default = "" if field.is_required() or field.default in (None, SecretStr("")) else f"`{field.default}`"
        lines.append(f"| `{name}` | `{variable(name)}` | {_cell(field.description or '')} | {default} |")
    return "\n".join(lines) + "\n"


def _contracts() -> str:
    lines = [
        "# Contracts",
        "",
        "Written by `make docs`. Frozen pydantic models; the id of a value is the SHA-256 of its canonical JSON.",
        "",
    ]
    exported = (getattr(contracts, name) for name in contracts.__all__)
    for noun in (item for item in exported if isinstance(item, type) and issubclass(item, Contract) and item is not Contract):
        about = (noun.__doc__ or "").strip().splitlines()
        schema = noun.model_json_schema()
        needed = schema.get("required", ())
        lines += [f"## {noun.__name__}", "", *([about[0], ""] if about else []), "| field | type | |", "|---|---|---|"]
        for name, shape in schema["properties"].items():
            lines.append(f"| `{name}` | {_cell(_shape(shape))} | {'required' if name in needed else ''} |")
        lines.append("")
    return "\n".join(lines)


def _red_flags() -> str:
    entries = read_list("red_flags.yaml")["entries"]
    lines = [
        "# Red flags",
        "",
        f"Written by `make docs` from `lexicon/red_flags.yaml`, version {VERSION}: {len(entries)} concepts. A test finds each",
        "flag in its example, in both languages, and nothing in its counter-example. A flag that is denied, over or only talked",
        "about does not count ([how urgent a question is](../stages/reward.md#how-urgent-a-question-is)).",
        "",
        "| id | sign | 体征 | example | 例子 | not this | 反例 |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in entries:
        cells = (entry["en_name"], entry["zh_name"], *entry["example"], *entry["counter"])
        lines.append(f"| `{entry['id']}` | {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


def _shape(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_shape(s) for s in schema["anyOf"] if s.get("type") != "null"))
    if "enum" in schema or "const" in schema:
        return " ".join(f"`{v}`" for v in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_shape(schema.get('items') or schema.get('prefixItems', [{}])[0])}"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"map to {_shape(inner)}" if isinstance(inner, dict) else "map"
    bounds = [
        f"{sign} {schema[key]:g}"
        for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
        if key in schema
    ]
    return " ".join([str(schema.get("format") or schema.get("type") or "any"), *bounds])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
