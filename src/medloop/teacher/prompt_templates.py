"""Prompt templates: files with a version and declared variables. A missing or unknown variable raises.

A template's version is its number and the hash of its text (`1-4f2a91c0`): a changed word is a new version, and cached judgements
of the old one are not used for it.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from medloop.errors import ConfigError

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_HEAD = re.compile(r"---\nname: (?P<name>\w+)\nversion: (?P<version>\d+)\nvariables: (?P<variables>[\w, ]+)\n---\n", re.ASCII)


@dataclass(frozen=True)
class PromptTemplate:
    name: str
    version: str
    variables: frozenset[str]
    system: str
    user: str

    def render(self, **values: str) -> list[dict[str, str]]:
        """The messages; a value is inserted as it is, even when it looks like a slot."""
        if set(values) != self.variables:
            wrong = ", ".join(sorted(set(values) ^ self.variables))
            raise ValueError(f"template {self.name}: variables do not fit ({wrong})")
        return [
            {"role": role, "content": _SLOT.sub(lambda slot: values[slot[1]], text).strip()}
            for role, text in (("system", self.system), ("user", self.user))
        ]


def names() -> list[str]:
    folder = resources.files("medloop.teacher") / "templates"
    return sorted(entry.name.removesuffix(".md") for entry in folder.iterdir() if entry.name.endswith(".md"))


@cache
def load(name: str) -> PromptTemplate:
    """A template by name; it declares exactly the variables that it uses."""
    if name not in names():
        raise ConfigError(f"There is no template '{name}'", f"Known: {', '.join(names())}")
    text = (resources.files("medloop.teacher") / "templates" / f"{name}.md").read_text(encoding="utf-8")
    head = _HEAD.match(text)
    assert head and head["name"] == name, f"template {name} has no proper head"
    _, system, user = re.split(r"^# (?:system|user)\n", text[head.end() :], flags=re.MULTILINE)
    variables = frozenset(part.strip() for part in head["variables"].split(","))
    used = set(_SLOT.findall(system + user))
    assert used == variables, f"template {name} declares {sorted(variables)} but uses {sorted(used)}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return PromptTemplate(name, f"{head['version']}-{digest}", variables, system, user)
