"""What a browser shows when a request fails, and where somebody without a session is sent."""

from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response

from medloop.api.policy import READ_METHODS, FormExpiredError, WrongRoleError, read_form
from medloop.errors import MedloopError
from medloop.web.render import redirect, show, translator_of
from medloop.web.words import Translator

TYPED = ("question", "answer", "comments", "golden", "reason")  # fields that take work to fill in


async def error_page(request: Request, code: int, error: MedloopError | None = None) -> Response:
    """A failure as a page in the reader's language; without a session, the login.

    What somebody had typed when their session ended is shown again, so that it is not lost.
    """
    if code == 401 and request.method in READ_METHODS:
        return redirect(login_address(request))
    if code == 401 or isinstance(error, FormExpiredError):
        form = await read_form(request)
        typed = [text for name in TYPED if (text := form.get(name, "").strip())]
        return show(request, None, "expired.html", code, what="session" if code == 401 else "form", typed=typed)
    title, text = _explain(code, error, translator_of(request))
    return show(request, None, "error.html", code, title=title, text=text)


def _explain(code: int, error: MedloopError | None, t: Translator) -> tuple[str, str]:
    if isinstance(error, WrongRoleError):
        return t("error_403_title"), t("error_role", role=t(f"role_{error.role}"))
    if code in (403, 404):
        return t(f"error_{code}_title"), t(f"error_{code}")
    return t("error_title"), t("error_input") if code in (409, 422) else t("error_other")


def login_address(request: Request) -> str:
    """Where a page sends somebody without a session; the login leads back."""
    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"/web/login?why=over&next={quote(back, safe='')}" if back != "/web/" else "/web/login"
