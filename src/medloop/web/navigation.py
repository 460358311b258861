"""The pages of the console: one table of groups and pages, which the left rail, the search and the tests read.

A new page adds one line here, `nav_NAME` to words/common.yaml, and `card_NAME` and `card_NAME_text` to words/home.yaml. The
routes themselves decide who may open a page (api/policy.py); a test compares the two.
"""

from typing import NamedTuple

EVERYBODY = ("clinician", "annotator", "engineer", "auditor", "admin")
READERS = ("clinician", "engineer", "auditor", "admin")
RATERS = ("clinician", "annotator")

GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "work": {
        "queue": RATERS,
        "rate": ("clinician",),
        "compare": RATERS,
        "correct": ("clinician",),
        "inspect": ("clinician",),
        "history": RATERS,
        "incidents": READERS,
    },
    "data": {
        "traces": READERS,
        "dashboard": ("engineer", "auditor", "admin"),
        "datasets": READERS,
        "filter": ("engineer",),
        "lineage": EVERYBODY,
        "quarantine": ("clinician",),
        "approvals": ("clinician", "admin"),
        "privacy": ("engineer", "auditor", "admin"),
    },
    "train": {
        "run": ("engineer", "admin"),
        "trust": ("engineer", "auditor", "admin"),
        "reward_models": ("engineer", "auditor", "admin"),
        "teacher": ("engineer", "auditor", "admin"),
    },
    "release": {
        "evaluations": READERS,
        "gate": READERS,
        "registry": READERS,
        "deployments": READERS,
        "experiments": READERS,
        "sites": READERS,
        "releases": READERS,
    },
    "teach": {
        "codebook": EVERYBODY,
        "rubrics": EVERYBODY,
        "knowledge": EVERYBODY,
    },
    "chat": {
        "chat": ("clinician", "engineer", "admin"),
    },
    "govern": {
        "audit": ("auditor",),
        "users": ("admin",),
        "keys": ("admin",),
        "settings": ("admin",),
    },
}
MENU = {name: roles for pages in GROUPS.values() for name, roles in pages.items()}
SITE_PAGES = ("queue", "rate", "compare", "correct", "history", "chat")  # they show a site its own records alone
# G and a letter lead to a page; G H leads home.
KEYS = {
    "queue": "q", "incidents": "i", "dashboard": "f", "datasets": "d", "traces": "t", "run": "r", "gate": "g", "registry": "m",
    "experiments": "e", "codebook": "c", "audit": "a", "users": "u",
}  # fmt: skip
# Roles that may open a page but reach it from another one, which gives them the item: {(page, role): from where}.
THROUGH = {("rate", "annotator"): "queue", ("correct", "annotator"): "queue"}
# Pages that are not in the rail, and the page or part of the layout that leads to them.
REACHED = {
    "/web/": "layout",
    "/web/account": "layout",
    "/web/login": "layout",
    "/web/settings/guidelines": "settings",
    "/web/audit/export": "audit",
    "/web/search": "layout",
    "/web/inspect/drawing": "inspect",  # no page: the part that moves while a sample is drawn
    "/web/loop": "layout",  # no page: the part of the home page that moves
    "/web/events": "layout",  # no page: says when something has changed
    "/web/alive": "layout",  # no page: keeps a session open while somebody types
}


class MenuGroup(NamedTuple):
    name: str
    pages: list[str]


def menu_of(role: str, *, of_site: bool = False) -> list[MenuGroup]:
    """The groups of the rail with the pages that this role may open; a group without any is left out. A user `of_site` belongs to
    a site other than `main` and opens only what shows no records of the others."""
    open_pages = {name for name, roles in MENU.items() if role in roles and (name in SITE_PAGES or not of_site)}
    groups = (MenuGroup(name, [page for page in pages if page in open_pages]) for name, pages in GROUPS.items())
    shown = [group for group in groups if group.pages]
    return sorted(shown, key=lambda group: group.name != "govern")  # who may open these comes for them


def page_of(path: str) -> str:
    """The page of the table that an address belongs to: `/web/gate/gate_1?done=sign` is of `gate`; empty for the home page."""
    return path.partition("?")[0].removeprefix("/web").strip("/").partition("/")[0]
