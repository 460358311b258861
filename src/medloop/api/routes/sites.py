"""`/api/v1/sites`: the sites with their users, champion, rules, experiment and feedback; move a user, name a site's champion.

What `medloop site` asks for is asked here, too: a champion needs its verdict and the sign-offs of the gate, and a clinician who
comes back to main reads all sites, so a second admin approves that.
"""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import authenticator_of, check_rate, store_of
from medloop.api.limits import heavy_read
from medloop.api.policy import Caller, allow
from medloop.api.routes.deploy import ERRORS, Deployer, DeployReader, Stopper
from medloop.contracts import utc_now
from medloop.feedback.insight.metrics import MetricsConfig, measure
from medloop.loop.deploy import deploy_site, end_site_champion, open_fleet, route_at
from medloop.privacy.phi.reason import LONGEST_REASON, checked_reason
from medloop.store.db import Store
from medloop.store.records import sites, users

router = APIRouter(prefix="/api/v1/sites", tags=["sites"])

Json = dict[str, Any]
SiteAdmin = Annotated[Caller, Depends(allow("admin", scope="users"))]
Site = Annotated[str, Path(max_length=64)]


class SiteUserBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=64, description="A clinician, or an engineer whose keys are a program's.")


class SiteChampionBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, le=2**31 - 1, description="A version of the registry that may be promoted.")
    reason: str = Field("", max_length=LONGEST_REASON)


class EndChampionBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field(min_length=1, max_length=LONGEST_REASON)


@router.get("", response_model=Json, responses=ERRORS)
def list_sites(request: Request, caller: DeployReader, days: Annotated[int, Query(ge=1, le=3650)] = 90) -> Response:
    """Every site: how many users, what answers there, own rules, the running experiment, its feedback of the last days."""
    check_rate(request, caller)
    store = store_of(request)
    with heavy_read():
        metrics = measure(store, MetricsConfig(since=utc_now() - timedelta(days=days), traces=0))
    said = {row.site: row for row in metrics.sites}
    rows = []
    for row in sites.list_sites(store):
        route = route_at(store, row.site)
        rows.append({**to_jsonable_python(row), "champion": route and route.served_name, "feedback": said.get(row.site)})
    return JSONResponse(to_jsonable_python({"sites": rows}))


@router.post("/{site}/users", response_model=Json, responses=ERRORS)
def assign(site: Site, body: SiteUserBody, request: Request, caller: SiteAdmin) -> Response:
    """Let a user belong to a site; sessions end and keys are revoked. A clinician who comes to main waits for a second admin."""
    check_rate(request, caller)
    return JSONResponse(move_user(request, body.name, site, caller))


def move_user(request: Request, name: str, site: str, caller: Caller) -> Json:
    """For the route and the page: nobody moves themselves, and what is cached about the user is forgotten."""
    store = store_of(request)
    user = users.get_user(store, name)
    sites.check_mover(user, caller.user_id)
    keys = sites.assign(store, user, site, actor=caller.user_id)
    authenticator_of(request).forget()
    return {"name": name, "site": site, "keys_revoked": keys, "waits": users.get_user(store, name).waits}


@router.post("/{site}/champion", response_model=Json, responses=ERRORS)
async def champion(site: Site, body: SiteChampionBody, request: Request, caller: Deployer) -> Response:
    """Let a version answer at one site, after its canaries. 409 with the reason if it may not or did not."""
    check_rate(request, caller)
    return JSONResponse(await run_in_threadpool(name_champion, store_of(request), site, body.version, caller, body.reason))


def name_champion(store: Store, site: str, version: int, caller: Caller, reason: str) -> Json:
    with open_fleet(store) as fleet:
        outcome = deploy_site(fleet, site, version, actor=caller.user_id, reason=reason)
    return {"site": site, "route": outcome.route.model_dump(mode="json"), "changed": outcome.changed, "from": outcome.from_name}


@router.post("/{site}/champion/end", response_model=Json, responses=ERRORS)
def end_champion(site: Site, body: EndChampionBody, request: Request, caller: Stopper) -> Response:
    """The champion of main answers at the site at once."""
    check_rate(request, caller)
    before = end_site_champion(store_of(request), site, actor=caller.user_id, reason=checked_reason(body.reason))
    return JSONResponse({"site": site, "before": before.served_name})
