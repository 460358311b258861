"""The chat page: ask the live assistant, see which version answered, and say what was wrong with the answer.

The page itself is one form; chat.js asks /v1/chat/completions and sends feedback to /api/v1/rlhf/feedback, as any client would.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.chat import gateway_of
from medloop.serve.gateway.answer_plan import version_of
from medloop.store.records.workspace_settings import consent_default
from medloop.web.render import show, translator_of
from medloop.web.words import table

router = APIRouter(prefix="/web", include_in_schema=False)

Asker = Annotated[Caller, Depends(allow("clinician", "engineer", "admin", scope="chat", sites=True))]
# What chat.js says, in the reader's language.
WORDS = (
    "chat_you", "chat_assistant", "chat_thinking", "chat_answered_by", "chat_fallback", "chat_reasoning", "chat_sources",
    "chat_page_number", "chat_up", "chat_down", "chat_more", "chat_comment", "chat_correction", "chat_correction_hint",
    "chat_critical", "chat_critical_hint", "chat_consent", "chat_send_feedback", "chat_saved", "chat_saved_critical",
    "chat_failed", "chat_again", "chat_stopped", "chat_no_model", "chat_loading", "chat_guards", "chat_rules", "chat_safety",
    "chat_expired", "chat_not_saved", "chat_nothing_new", "colon", "list_semicolon",
    "critical_sure", "critical_sure_text", "critical_yes", "critical_no",
)  # fmt: skip


@router.get("/chat")
async def chat_page(request: Request, caller: Asker) -> Response:
    gateway, t = gateway_of(request), translator_of(request)
    route = await gateway.parts.of_site(caller.site).live_route()
    ready = any(backend.models for backend in gateway.pool.backends)
    consent = "training" in consent_default(store_of(request))
    words = {name.removeprefix("chat_"): t(name) for name in WORDS}
    words |= {name: t(name) for name in table() if name.startswith(("guard_", "finding_"))}
    version = version_of(route) if route else ""
    loading = gateway.pool.loading
    return show(
        request, caller, "chat.html", ready=ready, loading=loading, version_name=version, words=words, consent=consent
    )  # fmt: skip
