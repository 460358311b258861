"""The guidelines page: an admin edits what raters read beside every form, in each language; older versions stay readable."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from medloop.api.deps import store_of
from medloop.api.policy import Caller, allow
from medloop.errors import InputError
from medloop.store.records import guidelines
from medloop.web.guidelines import built_in
from medloop.web.people import People
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.words import LANGUAGES, Language, Translator

router = APIRouter(prefix="/web", include_in_schema=False)

Admin = Annotated[Caller, Depends(allow("admin", scope="users"))]


@router.get("/settings/guidelines")
def guidelines_page(
    request: Request, caller: Admin, language: Annotated[str, Query(max_length=8)] = "", version: int | None = None,
    saved: bool = False,
) -> Response:  # fmt: skip
    """The newest version to edit; or an older one, which saving makes the newest."""
    t = translator_of(request)
    note = t("guidelines_saved") if saved else ""
    return _show(request, caller, _language(language, t), version=version, note=note)


@router.post("/settings/guidelines")
def save_guidelines(request: Request, caller: Admin, form: FormFields) -> Response:
    t = translator_of(request)
    language, text = _language(form.get("language", ""), t), form.get("text", "").replace("\r\n", "\n")
    was = int(form["was"]) if form.get("was", "").isdecimal() else 0
    if form.get("preview"):
        return _show(request, caller, language, typed=text)
    if text.strip() == built_in(language).strip():
        text = ""
    try:
        guidelines.save(store_of(request), language, text, was=was, actor=caller.user_id)
    except guidelines.NewerVersionError:
        return _show(request, caller, language, 409, typed=text, problem=t("guidelines_newer"))
    except InputError:
        return _show(request, caller, language, 422, typed=text, problem=t("guidelines_too_long", most=guidelines.MAX_TEXT))
    return redirect(f"/web/settings/guidelines?language={language}&saved=true")


def _language(value: str, t: Translator) -> Language:
    return next((language for language in LANGUAGES if language == value), t.language)


def _show(
    request: Request, caller: Caller, language: Language, code: int = 200, *, version: int | None = None,
    typed: str | None = None, note: str = "", problem: str = "",
) -> Response:  # fmt: skip
    store = store_of(request)
    versions = guidelines.versions(store, language)
    text = next((old.text for old in versions if version in (None, old.version)), "") if typed is None else typed
    context: dict[str, Any] = {"language": language, "languages": LANGUAGES, "versions": versions, "note": note}
    context |= {"was": versions[0].version if versions else 0, "text": text or built_in(language), "problem": problem}
    context |= {"shown": version, "who": People(store, translator_of(request)), "most": guidelines.MAX_TEXT}
    return show(request, caller, "guidelines.html", code, **context)
