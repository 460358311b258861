"""A page as HTML: Jinja2 with autoescape for everything, unknown names an error; and the static files, held in memory.

Static files are a closed list read at the start, so no address can name another file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from medloop.web.words import Language, Words

HERE = Path(__file__).parent
KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
# Who finds what in the menu; the routes themselves decide who may (api/policy.py), and a test compares the two.
MENU = {
    "queue": ("clinician", "annotator"),
    "rate": ("clinician",),
    "compare": ("clinician", "annotator"),
    "correct": ("clinician",),
    "history": ("clinician", "annotator"),
    "quarantine": ("clinician",),
    "dashboard": ("engineer", "auditor", "admin"),
    "audit": ("auditor",),
    "users": ("admin",),
}


@dataclass(frozen=True)
class Viewer:
    """Who looks at a page; without a name, somebody at the login."""

    language: Language
    name: str = ""
    role: str = ""
    csrf: str = ""
    path: str = "/web/"

    @property
    def menu(self) -> list[str]:
        return [name for name, roles in MENU.items() if self.role in roles]


@dataclass(frozen=True)
class Static:
    body: bytes
    kind: str


@cache
def static_files() -> dict[str, Static]:
    found = sorted((HERE / "static").iterdir())
    return {path.name: Static(path.read_bytes(), KINDS[path.suffix]) for path in found if path.suffix in KINDS}


@cache
def version() -> str:
    """Changes when any static file does, so that browsers may keep them."""
    return hashlib.sha256(b"".join(file.body for file in static_files().values())).hexdigest()[:12]


@cache
def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return env


def page(template: str, viewer: Viewer, **filled: Any) -> str:
    return _environment().get_template(template).render(
        t=Words(viewer.language), viewer=viewer, version=version(), page=template.removesuffix(".html"), **filled
    )  # fmt: skip
