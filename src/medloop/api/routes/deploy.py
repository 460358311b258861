"""`/api/v1/deploy`: what answers, what the model servers have; deploy the champion, roll back, block, clear a block."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_jsonable_python
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.feedback import REFUSED
from medloop.contracts.assistant import Champion
from medloop.loop.deploy import DeployOutcome, deploy_alias, deploy_status, open_fleet
from medloop.loop.rollback import block_version, clear_block, roll_back
from medloop.privacy.phi.reason import LONGEST_REASON
from medloop.store.db import Store
from medloop.store.records.deploy_events import events

router = APIRouter(prefix="/api/v1/deploy", tags=["deploy"])

Json = dict[str, Any]
READERS, DEPLOYERS = ("clinician", "engineer", "auditor", "admin"), ("engineer", "admin")
STOPPERS = ("clinician", "engineer", "admin")  # whoever sees harm may stop it
DeployReader = Annotated[Caller, Depends(allow(*READERS, scope="registry"))]
Deployer = Annotated[Caller, Depends(allow(*DEPLOYERS, scope="registry"))]
Stopper = Annotated[Caller, Depends(allow(*STOPPERS, scope="registry"))]
ERRORS: dict[int | str, Json] = {code: REFUSED[code] for code in (401, 403, 422, 429, 503)}
ERRORS |= {404: {"description": "There is no such version."}, 409: {"description": "It may not go live, or did not."}}


class DeployBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    alias: Champion = "champion"
    version: int | None = Field(None, ge=1, le=2**31 - 1, description="Deploy only if this version has the alias.")
    reason: str = Field("", max_length=LONGEST_REASON)


class DeployRollbackBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field(min_length=1, max_length=LONGEST_REASON)
    to: str | None = Field(
        None, pattern=r"^(base|[0-9]{1,9})$", description="A version or base; the version before if not given."
    )


class BlockBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, le=2**31 - 1)
    reason: str = Field(min_length=1, max_length=LONGEST_REASON)


class ClearBlockBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=1, le=2**31 - 1)
    reason: str = Field("", max_length=LONGEST_REASON)


@router.get("", response_model=Json, responses=ERRORS)
async def get_status(request: Request, caller: DeployReader) -> Response:
    """What answers now, what each model server has, standing alarms and blocked versions."""
    check_rate(request, caller)
    return JSONResponse(to_jsonable_python(await run_in_threadpool(deploy_status, store_of(request))))


@router.get("/events", response_model=Json, responses=ERRORS)
async def get_events(request: Request, caller: DeployReader, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
    """What happened to deployed versions, newest first."""
    check_rate(request, caller)
    rows = await run_in_threadpool(lambda: events(store_of(request), limit=limit))
    return JSONResponse({"events": [row.model_dump(mode="json") for row in rows]})


@router.post("", response_model=Json, responses=ERRORS)
async def deploy(body: DeployBody, request: Request, caller: Deployer) -> Response:
    """Bring the version with the alias live; the answer comes when it is. 409 with the reason if it may not or did not."""
    check_rate(request, caller)
    return JSONResponse(await run_in_threadpool(_deploy, store_of(request), body, caller.user_id))


def _deploy(store: Store, body: DeployBody, by: str) -> Json:
    with open_fleet(store) as fleet:
        return _fields(deploy_alias(fleet, body.alias, actor=by, reason=body.reason, version=body.version))


@router.post("/rollback", response_model=Json, responses=ERRORS)
async def rollback(body: DeployRollbackBody, request: Request, caller: Stopper) -> Response:
    """Let an earlier version answer at once; the one that answered is blocked until somebody clears it."""
    check_rate(request, caller)
    return JSONResponse(await run_in_threadpool(_roll_back, store_of(request), body, caller.user_id))


def _roll_back(store: Store, body: DeployRollbackBody, by: str) -> Json:
    with open_fleet(store) as fleet:
        return _fields(roll_back(fleet, actor=by, reason=body.reason, to=body.to))


@router.post("/block", response_model=Json, responses=ERRORS)
async def block(body: BlockBody, request: Request, caller: Stopper) -> Response:
    """Stop a version that answers at sites: main's champion answers there from now on. 422 for what main itself uses."""
    check_rate(request, caller)
    store = store_of(request)
    left = await run_in_threadpool(lambda: block_version(store, body.version, actor=caller.user_id, reason=body.reason))
    return JSONResponse({"version": body.version, "blocked": True, "sites": left})


@router.post("/clear", response_model=Json, responses=ERRORS)
async def clear(body: ClearBlockBody, request: Request, caller: Deployer) -> Response:
    """Let a version that was rolled back go live again."""
    check_rate(request, caller)
    await run_in_threadpool(lambda: clear_block(store_of(request), body.version, actor=caller.user_id, reason=body.reason))
    return JSONResponse({"version": body.version, "blocked": False})


def _fields(outcome: DeployOutcome) -> Json:
    return {"route": outcome.route.model_dump(mode="json"), "changed": outcome.changed, "from": outcome.from_name}
