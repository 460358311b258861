"""The documents that answers cite: a list, a search as the assistant does it, a page with the cited characters marked."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import check_rate, settings_of, store_of
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.contracts import AuditEvent
from medloop.contracts.knowledge import DocumentPage
from medloop.errors import InputError
from medloop.loop.knowledge import KnowledgeSearch, prune_vectors
from medloop.serve.agent.library import Library
from medloop.store import audit
from medloop.web.render import FormFields, redirect, show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

EDITORS = ("engineer", "admin")
KnowledgeReader = Annotated[Caller, Depends(allow("clinician", "annotator", "engineer", "auditor", "admin", scope="data"))]
KnowledgeEditor = Annotated[Caller, Depends(allow(*EDITORS, scope="data"))]
MOST_QUESTION = 2_000
AROUND = 3_000  # characters of a long page that are shown on either side of what is cited


@router.get("/knowledge")
def knowledge_page(
    request: Request, caller: KnowledgeReader, q: Annotated[str, Query(max_length=MOST_QUESTION)] = "", done: str = ""
) -> Response:
    """All documents; with `q` also the passages that the assistant would be given."""
    context: dict[str, Any] = {"q": q, "result": None, "note": ""}
    settings = settings_of(request)
    if q.strip():
        check_rate(request, caller)
        context["result"] = _search_of(request).examine(q)
    if done == "removed":
        context["note"] = translator_of(request)("knowledge_removed")
    documents = [stored.card for stored in Library(settings.home).documents()]
    return show(request, caller, "knowledge.html", documents=documents, may_remove=caller.role in EDITORS, **context)


@router.get("/knowledge/{document}")
def document_page(
    request: Request, caller: KnowledgeReader, document: str, page: Annotated[int, Query(ge=0, le=100_000)] = 0,
    start: Annotated[int, Query(ge=0)] = 0, end: Annotated[int, Query(ge=0)] = 0,
) -> Response:  # fmt: skip
    """One page of a document; the cited characters are marked."""
    library = Library(settings_of(request).home)
    try:
        card = library.find(document)
    except InputError:
        raise NotFoundError("There is no such document") from None
    pages = library.pages(card.document_id)
    if page >= len(pages):
        raise NotFoundError("There is no such page")
    return show(
        request, caller, "knowledge_document.html", card=card, page=page, count=len(pages), parts=_parts(pages[page], start, end)
    )


@router.post("/knowledge/{document}/remove")
def remove(request: Request, caller: KnowledgeEditor, document: str, form: FormFields) -> Response:
    check_rate(request, caller)
    library = Library(settings_of(request).home)
    try:
        card = library.find(document)
    except InputError:
        raise NotFoundError("There is no such document") from None
    if form.get("confirm") != "yes":
        return redirect("/web/knowledge")
    library.remove(card.document_id)
    event = AuditEvent(
        actor=caller.user_id, action="knowledge.remove", subject=f"knowledge/documents/{card.document_id}",
        detail={"source_sha256": card.source_sha256},
    )  # fmt: skip
    with store_of(request).write() as conn:
        audit.append(conn, event)
    prune_vectors(store_of(request))
    return redirect("/web/knowledge?done=removed")


def _search_of(request: Request) -> KnowledgeSearch:
    """One index for the whole server: opening it takes seconds."""
    state = request.app.state
    if getattr(state, "knowledge_search", None) is None:
        state.knowledge_search = KnowledgeSearch(settings_of(request), store=store_of(request))
    search: KnowledgeSearch = state.knowledge_search
    return search


def _parts(page: DocumentPage, start: int, end: int) -> tuple[str, str, str]:
    """Text before, in and after the cited characters; of a very long page only what is around them."""
    text = page.text
    if not 0 <= start < end <= len(text):
        start = end = 0
    first, last = max(0, start - AROUND), min(len(text), end + 2 * AROUND)
    return text[first:start], text[start:end], text[end:last]
