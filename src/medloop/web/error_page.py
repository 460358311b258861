"""What a browser shows when a request fails, and where somebody without a session is sent."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from medloop.api.policy import READ_METHODS, FormExpiredError, read_form
from medloop.errors import MedloopError
from medloop.web import render
from medloop.web.words import Words, choose

LANGUAGE_COOKIE = "medloop_language"
TYPED = ("question", "answer", "comments", "golden", "reason")  # fields that take work to fill in


async def error_page(request: Request, code: int, error: MedloopError | None = None) -> Response:
    """A failure as a page in the reader's language; without a session that is the login.

    What somebody had typed when their session ended is shown to them again, so that it is not lost.
    """
    language = choose(request.cookies.get(LANGUAGE_COOKIE), request.headers.get("accept-language", ""))
    t, viewer = Words(language), render.Viewer(language)
    if code == 401 and request.method in READ_METHODS:
        return RedirectResponse(login_address(request), status_code=303)
    if code == 401 or isinstance(error, FormExpiredError):
        typed = [text for name in TYPED if (text := (await read_form(request)).get(name, "").strip())]
        return HTMLResponse(render.page("expired.html", viewer, typed=typed), status_code=code)
    message = error.what if error is not None and code in (409, 422) else ""
    text = t(f"error_{code}") if code in (403, 404) else message or t("error_other")
    return HTMLResponse(render.page("error.html", viewer, text=text), status_code=code)


def login_address(request: Request) -> str:
    """Where somebody without a session is sent from a page; the login leads back."""
    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"/web/login?why=over&next={quote(back, safe='')}" if back != "/web/" else "/web/login"
