"""The sites: who belongs to each, what answers there, its own rules and experiment, what its users say; move a user, name or end
a site's champion. The steps are those of `/api/v1/sites`."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, NotFoundError
from medloop.api.routes.deploy import DEPLOYERS, STOPPERS, Deployer, DeployReader, Stopper
from medloop.api.routes.sites import SiteAdmin, move_user, name_champion
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.errors import BusyError, ConfigError, InputError, ResultError
from medloop.loop.deploy import end_site_champion, route_at
from medloop.privacy.phi.reason import LONGEST_REASON, checked_reason
from medloop.store.records import registry, sites, users
from medloop.store.records.routes import site_champions
from medloop.web.lists import address
from medloop.web.pages.dashboard import measured_numbers
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.told import told

router = APIRouter(prefix="/web", include_in_schema=False)

PROBLEMS = (InputError, ResultError, BusyError, ConfigError)
DAYS = 30
NOTES = ("assign", "waits", "champion", "end")


@router.get("/sites")
def sites_page(
    request: Request, caller: DeployReader, done: Annotated[str, Query(max_length=20)] = "",
    name: Annotated[str, Query(max_length=64)] = "", at: Annotated[str, Query(max_length=64)] = "",
) -> Response:  # fmt: skip
    people = users.list_users(store_of(request)) if name else []
    is_shown = done in NOTES and (not name or any((user.name, user.site) == (name, at) for user in people))
    note = translator_of(request)(f"sites_done_{done}", name=name, site=at) if is_shown else ""
    return _show(request, caller, note=note)


@router.post("/sites/assign")
def assign(request: Request, caller: SiteAdmin, form: FormFields) -> Response:
    check_rate(request, caller)
    name, site = form.get("name", ""), form.get("site", "").strip()
    known = [row.site for row in sites.list_sites(store_of(request))]
    try:
        if sites.checked_site(site) not in known and form.get("new") != "yes":
            return _show(request, caller, 422, problem=translator_of(request)("sites_is_new", site=site), typed=form)
        moved = move_user(request, name, site, caller)
    except PROBLEMS as error:
        return _refused(request, caller, error)
    return redirect(address("/web/sites", done="waits" if moved["waits"] else "assign", name=name, at=site))


@router.post("/sites/end")
def end(request: Request, caller: Stopper, form: FormFields) -> Response:
    check_rate(request, caller)
    if form.get("confirm") != "yes":
        return _show(request, caller, 422, problem=translator_of(request)("deployments_not_confirmed"))
    try:
        reason = checked_reason(form.get("reason", ""))
        end_site_champion(store_of(request), form.get("site", ""), actor=caller.user_id, reason=reason)
    except PROBLEMS as error:
        return _refused(request, caller, error)
    return redirect("/web/sites?done=end")


@router.post("/sites/champion")
def champion(request: Request, caller: Deployer, form: FormFields) -> Response:
    check_rate(request, caller)
    number = form.get("version", "")
    if form.get("confirm") != "yes":
        return _show(request, caller, 422, problem=translator_of(request)("deployments_not_confirmed"))
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise NotFoundError("There is no such version")
    try:
        name_champion(store_of(request), form.get("site", ""), int(number), caller, form.get("reason", ""))
    except PROBLEMS as error:
        return _refused(request, caller, error)
    return redirect("/web/sites?done=champion")


def _refused(request: Request, caller: Caller, error: Exception) -> Response:
    t = translator_of(request)
    code = 422 if isinstance(error, InputError) else 409
    return _show(request, caller, code, problem=t("deployments_not_done"), detail=str(error))


def _show(
    request: Request, caller: Caller, code: int = 200, *, note: str = "", problem: str = "", detail: str = "",
    typed: dict[str, str] | None = None,
) -> Response:  # fmt: skip
    store, t = store_of(request), translator_of(request)
    known, own = sites.list_sites(store), site_champions(store)
    numbers = measured_numbers(request, DAYS)
    people = users.list_users(store)
    context: dict[str, Any] = {
        "rows": known, "routes": {row.site: route_at(store, row.site) for row in known}, "own": own, "main": DEFAULT_SITE,
        "said": {} if numbers is None else {row.site: row for row in numbers.metrics.sites}, "days": DAYS,
        "names": {row.site: sorted(user.name for user in people if user.site == row.site) for row in known},
        "movable": [user for user in people if user.user_id != caller.user_id and user.role in sites.ASKERS],
        "versions": [row.record.version for row in registry.versions(store, store.settings.registry.model)],
        "may_assign": caller.role == "admin", "may_deploy": caller.role in DEPLOYERS, "may_stop": caller.role in STOPPERS,
        "typed": typed or {}, "max_reason": LONGEST_REASON, "note": note, "problem": problem, "detail": told(detail, t),
    }  # fmt: skip
    return show(request, caller, "sites.html", code, **context)
