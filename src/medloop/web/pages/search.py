"""Search across the pages: page names, ids and names of what the reader's role may open. Texts of records are not searched."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from medloop.api.deps import settings_of, store_of
from medloop.jobs import queue
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records.find_ids import find_ids
from medloop.web.navigation import MENU
from medloop.web.pages.login import Anyone
from medloop.web.render import show, translator_of
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

MOST = 8  # of each kind
SHORTEST = 2  # letters of an id; shorter ones would find nearly everything
# kind -> the page that a role must be allowed to open, and where a find leads.
PLACES = {
    "trace": ("traces", "/web/traces/{}"), "incident": ("incidents", "/web/incidents/{}"),
    "rule": ("codebook", "/web/codebook/{}"),
    "version": ("registry", "/web/registry#{}"), "artifact": ("datasets", "/web/lineage?of={}"), "gate": ("gate", "/web/gate/{}"),
    "experiment": ("experiments", "/web/experiments/{}"),
}  # fmt: skip


@dataclass(frozen=True)
class Hit:
    kind: str
    label: str
    link: str
    about: str = ""


@router.get("/search")
def search_page(request: Request, caller: Anyone, q: Annotated[str, Query(max_length=200)] = "") -> Response:
    words, t = " ".join(q.split()), translator_of(request)
    hits = list(_hits(store_of(request), settings_of(request), caller.role, words, t)) if words else []
    return show(request, caller, "search.html", q=words, hits=hits)


def _hits(store: Store, settings: Settings, role: str, words: str, t: Translator) -> Iterator[Hit]:
    for name, roles in MENU.items():
        texts = (t(f"nav_{name}"), t(f"card_{name}"), name)
        if role in roles and any(words.casefold() in text.casefold() for text in texts):
            yield Hit("page", t(f"nav_{name}"), f"/web/{name}", t(f"card_{name}_text"))
    if len(words) < SHORTEST:
        return
    kinds = [kind for kind, (page, _) in PLACES.items() if role in MENU[page]]
    for found in find_ids(store, words, kinds=kinds, most=MOST):
        yield Hit(found.kind, found.label, PLACES[found.kind][1].format(quote(found.subject, safe="")))
    if role in MENU["run"]:
        jobs = [job_id for job_id in queue.ids(settings, ("train",)) if words in job_id]
        yield from (Hit("job", job_id, f"/web/run?job={quote(job_id, safe='')}") for job_id in jobs[:MOST])
