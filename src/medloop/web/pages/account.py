"""The account page: people change their own password."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from medloop.api.deps import authenticator_of
from medloop.store.records import users
from medloop.store.weak_passwords import weakness
from medloop.web.pages.login import AnySite, address_of, with_session
from medloop.web.render import FormFields, show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)


@router.get("/account")
def account(request: Request, caller: AnySite, first: bool = False) -> Response:
    return show(request, caller, "account.html", errors={}, changed=False, first=first)


@router.post("/account")
def change_password(request: Request, caller: AnySite, form: FormFields) -> Response:
    """Asks for the current password, within the same five attempts. Sessions and keys end; this browser gets a new session."""
    t, authenticator, new = translator_of(request), authenticator_of(request), form.get("new", "")
    first = form.get("first") == "true"
    if not authenticator.attempts.allowed(caller.name, address_of(request)):
        return show(request, caller, "account.html", 429, errors={"now": t("login_wait")}, changed=False, first=first)
    user = users.check_password(authenticator.store, caller.name, form.get("now", ""))
    errors = {} if user else {"now": t("password_wrong")}
    if (reason := weakness(new, caller.name)) is not None:
        errors["new"] = t(f"password_weak_{reason}")
    elif user is not None and new == form.get("now", ""):
        errors["new"] = t("password_same")
    elif new != form.get("again", ""):
        errors["again"] = t("password_differs")
    if user is None or errors:
        return show(request, caller, "account.html", 422, errors=errors, changed=False, first=first)
    keys = users.set_password(authenticator.store, user, new, actor=user.user_id)
    authenticator.forget()
    return with_session(request, show(request, None, "account.html", errors={}, changed=True, first=False, keys=keys), user)
