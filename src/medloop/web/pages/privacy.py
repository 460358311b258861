"""Consent, privacy review and erasure in numbers: what people allowed, what is held back, what was erased. Read-only."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller, allow
from medloop.store.records.privacy_counts import privacy_counts
from medloop.store.records.workspace_settings import consent_default
from medloop.web.people import People
from medloop.web.render import show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

PrivacyReader = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="privacy"))]


@router.get("/privacy")
def privacy_page(request: Request, caller: PrivacyReader) -> Response:
    store = store_of(request)
    context: dict[str, Any] = {
        "counts": privacy_counts(store),
        "default": consent_default(store),
        "who": People(store, translator_of(request)),
    }
    return show(request, caller, "privacy.html", **context)
