"""A page as HTML, in the reader's language, and what every page handler shares.

Jinja2 escapes everything, and an undefined name in a template is an error.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.routing import Route

from medloop.api.policy import Caller, read_form
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.web.markdown import render_markdown, split_reasoning
from medloop.web.measures import check_name, metric_name, split_name, stratum_name
from medloop.web.navigation import KEYS, MENU, SITE_PAGES, MenuGroup, menu_of, page_of
from medloop.web.static_files import version
from medloop.web.told import told
from medloop.web.words import Language, Translator, choose

LANGUAGE_COOKIE = "medloop_language"
FormFields = Annotated[dict[str, str], Depends(read_form)]


@dataclass(frozen=True)
class Viewer:
    """Who looks at a page; without a name, somebody at the login."""

    language: Language
    name: str = ""
    role: str = ""
    csrf: str = ""
    path: str = "/web/"
    of_site: bool = False

    @property
    def menu(self) -> list[MenuGroup]:
        return menu_of(self.role, of_site=self.of_site)

    @property
    def keys(self) -> dict[str, str]:
        return {name: letter for name, letter in KEYS.items() if self.may(name)}

    def may(self, page: str) -> bool:
        """Whether this person may open a page of the menu; where not, a page names things without a link."""
        return self.role in MENU[page] and (not self.of_site or page in SITE_PAGES)

    @property
    def page(self) -> str:
        return page_of(self.path)


@dataclass(frozen=True)
class Figure:
    """A plot with a caption, and the same numbers as a table (figure.html)."""

    title: str
    plot: Markup
    caption: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    wide: bool = False  # as wide as the page, and scrolled where that is too narrow to read it


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals["told"] = told
    environment.globals |= {"metric_name": metric_name, "split_name": split_name}
    environment.globals |= {"stratum_name": stratum_name, "check_name": check_name}
    environment.filters |= {"markdown": render_markdown, "answer_view": split_reasoning}
    return environment


def render(template: str, viewer: Viewer, **context: Any) -> str:
    t = Translator(viewer.language)
    return _environment().get_template(template).render(t=t, viewer=viewer, version=version(), **context)


def show(request: Request, caller: Caller | None, template: str, code: int = 200, **context: Any) -> HTMLResponse:
    """The page as a response; `caller` is None for somebody who is not logged in."""
    path = _page_of(request)
    viewer = Viewer(language_of(request), path=path)
    if caller is not None:
        viewer = Viewer(viewer.language, caller.name, caller.role, caller.csrf, path, caller.site != DEFAULT_SITE)
    return HTMLResponse(render(template, viewer, **context), status_code=code)


def _page_of(request: Request) -> str:
    """The address that opens this page again; of the answer to a form, that of the nearest page above the form's address."""
    path = request.url.path
    if request.method == "GET":
        return path + (f"?{request.url.query}" if request.url.query else "")
    route: str = getattr(request.scope.get("route"), "path", "")
    pages = {_shape(other.path) for other in request.app.routes if isinstance(other, Route) and "GET" in (other.methods or ())}
    while route.startswith("/web/"):
        if _shape(route) in pages:
            return path
        route, path = route.rpartition("/")[0], path.rpartition("/")[0]
    return "/web/"


def _shape(route: str) -> str:
    """The path of a route without the names of its parameters."""
    return re.sub(r"{[^}]*}", "{}", route)


def redirect(path: str) -> RedirectResponse:
    return RedirectResponse(path, status_code=303)


def language_of(request: Request) -> Language:
    return choose(request.cookies.get(LANGUAGE_COOKIE), request.headers.get("accept-language", ""))


def translator_of(request: Request) -> Translator:
    return Translator(language_of(request))
