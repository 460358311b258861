"""What a browser shows when a request fails, and where somebody without a session is sent."""

from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response

from medloop.api.limits import RateLimitError
from medloop.api.policy import (
    READ_METHODS,
    Caller,
    ForeignOriginError,
    FormExpiredError,
    OtherSitesError,
    PasswordChangeError,
    WrongRoleError,
    caller_of,
    credential_of,
    read_form,
)
from medloop.errors import BusyError, MedloopError, NoSpaceError
from medloop.web.render import redirect, show, translator_of
from medloop.web.words import Translator

TYPED = ("question", "answer", "comments", "golden", "reason", "note")  # fields that take work to fill in
NAMED = (403, 404, 409, 413, 422)  # these have a title and a text of their own


async def error_page(request: Request, code: int, error: MedloopError | None = None) -> Response:
    """A failure as a page in the reader's language, with the menu; without a session, the login.

    What somebody had typed when their session ended, or before a failure, is shown again, so that it is not lost.
    """
    if code == 401 and request.method in READ_METHODS:
        return redirect(login_address(request))
    if isinstance(error, PasswordChangeError):
        return redirect("/web/account?first=true")
    form = {} if request.method in READ_METHODS else await read_form(request)
    typed = [text for name in TYPED if (text := form.get(name, "").strip())]
    if code == 401 or isinstance(error, FormExpiredError):
        return show(request, None, "expired.html", code, what="session" if code == 401 else "form", typed=typed)
    title, text = _explain(request, code, error, translator_of(request))
    response = show(request, await _caller(request), "error.html", code, title=title, text=text, typed=typed)
    if isinstance(error, RateLimitError):
        response.headers["Retry-After"] = str(error.retry_after)
    return response


async def _caller(request: Request) -> Caller | None:
    """Who is logged in, so that the page has its menu; None where that cannot be found out either."""
    try:
        credential = await credential_of(request)
    except Exception:  # this page has to appear whatever is broken
        return None
    return None if credential is None else caller_of(credential)


def _explain(request: Request, code: int, error: MedloopError | None, t: Translator) -> tuple[str, str]:
    if isinstance(error, WrongRoleError):
        allowed = t("list_comma").join(t(f"role_{role}") for role in error.allowed)
        role = t("error_role" if request.method in READ_METHODS else "error_role_sent", role=t(f"role_{error.role}"))
        return t("error_403_title"), t.sentences(role, t("error_role_who", roles=allowed))
    if isinstance(error, OtherSitesError):
        return t("error_403_title"), t("error_site", site=error.site)
    if isinstance(error, ForeignOriginError):
        return t("error_403_title"), t("error_foreign")
    if isinstance(error, RateLimitError):
        return t("error_429_title"), t("error_429", seconds=error.retry_after)
    if isinstance(error, BusyError):
        return t("error_busy_title"), t("error_busy")
    if isinstance(error, NoSpaceError):
        return t("error_title"), t("error_no_space")
    if code == 422 and request.method in READ_METHODS:
        return t("error_address_title"), t("error_address")
    if code in NAMED:
        return t(f"error_{code}_title"), t(f"error_{code}")
    return t("error_title"), t("error_other")


def login_address(request: Request) -> str:
    """Where a page sends somebody without a session; the login leads back."""
    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"/web/login?why=over&next={quote(back, safe='')}" if back != "/web/" else "/web/login"
