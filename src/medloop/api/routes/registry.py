"""`/api/v1/registry`: versions of the model, registering one by its hash, and the aliases champion and challenger.

Whether a version may be promoted is decided by the gate's records in the store, whoever asks.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi import Path as InPath
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.feedback import REFUSED
from medloop.contracts.base import Hash
from medloop.contracts.registry import Alias
from medloop.privacy.phi.reason import LONGEST_REASON
from medloop.registry import promote as aliases
from medloop.registry.listing import get_listed, list_versions
from medloop.registry.register import register_in
from medloop.store import catalog
from medloop.store.db import Store
from medloop.store.records.registry import NoSuchVersionError

router = APIRouter(prefix="/api/v1/registry", tags=["registry"])

Json = dict[str, Any]
READERS, PROMOTERS = ("clinician", "engineer", "auditor", "admin"), ("engineer", "admin")
RegistryReader = Annotated[Caller, Depends(allow(*READERS, scope="registry"))]
Promoter = Annotated[Caller, Depends(allow(*PROMOTERS, scope="registry"))]
VersionNumber = Annotated[int, InPath(ge=1, le=2**31 - 1)]
ERRORS: dict[int | str, Json] = {code: REFUSED[code] for code in (401, 403, 422, 429, 503)}
ERRORS |= {404: {"description": "There is no such version."}, 409: {"description": "The gate's records forbid this promotion."}}


class RegisterBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    artifact: Hash = Field(description="Hash of an adapter that was trained in this workspace.")


class AliasBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    alias: Alias = "champion"
    reason: str = Field("", max_length=LONGEST_REASON)


class PromoteBody(AliasBody):
    version: int = Field(ge=1, le=2**31 - 1)


@router.get("/versions", response_model=Json, responses=ERRORS)
async def get_versions(request: Request, caller: RegistryReader) -> Response:
    """All versions, newest first, each with its aliases, the gate's newest verdict and what forbids its promotion."""
    check_rate(request, caller)
    versions = await run_in_threadpool(list_versions, store_of(request))
    return JSONResponse({"versions": [listed.fields() for listed in versions]})


@router.get("/versions/{version}", response_model=Json, responses=ERRORS)
async def get_version(version: VersionNumber, request: Request, caller: RegistryReader) -> Response:
    """One version."""
    check_rate(request, caller)
    return JSONResponse((await run_in_threadpool(get_listed, store_of(request), version)).fields())


@router.post("/versions", status_code=201, response_model=Json, responses=ERRORS)
async def register_version(body: RegisterBody, request: Request, caller: Promoter) -> Response:
    """Register an adapter by its hash; the same bytes keep the number they have."""
    check_rate(request, caller)
    return JSONResponse(await run_in_threadpool(_register, store_of(request), body.artifact, caller.user_id), status_code=201)


def _register(store: Store, artifact: str, by: str) -> Json:
    entry = catalog.find(store, artifact)
    if entry is None or entry.kind != "adapter":
        raise NoSuchVersionError("No adapter of this workspace has these bytes", "Train it first, or check the hash")
    outcome = register_in(store, str(entry.path), actor=by)
    return _with_lag(store, outcome.stored.record.version, outcome.lag)


@router.post("/promote", response_model=Json, responses=ERRORS)
async def promote(body: PromoteBody, request: Request, caller: Promoter) -> Response:
    """Give an alias to a version. 409 without a passed gate for the same bytes, with an open incident, or if it is tainted."""
    check_rate(request, caller)
    return JSONResponse(await run_in_threadpool(_promote, store_of(request), body, caller.user_id))


def _promote(store: Store, body: PromoteBody, by: str) -> Json:
    outcome = aliases.promote_in(store, body.version, actor=by, alias=body.alias, reason=body.reason)
    return _with_lag(store, body.version, outcome.lag)


@router.post("/rollback", response_model=Json, responses=ERRORS)
async def rollback(body: AliasBody, request: Request, caller: Promoter) -> Response:
    """Give an alias back to the version that had it before. 409 if the gate failed it since, or if it is tainted."""
    check_rate(request, caller)
    return JSONResponse(await run_in_threadpool(_rollback, store_of(request), body, caller.user_id))


def _rollback(store: Store, body: AliasBody, by: str) -> Json:
    outcome = aliases.rollback_in(store, actor=by, alias=body.alias, reason=body.reason)
    return _with_lag(store, outcome.stored.record.version, outcome.lag)


@router.post("/demote", response_model=Json, responses=ERRORS)
async def demote(body: AliasBody, request: Request, caller: Promoter) -> Response:
    """Take an alias away from the version that has it."""
    check_rate(request, caller)
    lag = await run_in_threadpool(_demote, store_of(request), body, caller.user_id)
    return JSONResponse({"alias": body.alias, "version": None, "lag": lag})


def _demote(store: Store, body: AliasBody, by: str) -> str | None:
    return aliases.demote_in(store, body.alias, actor=by, reason=body.reason)


def _with_lag(store: Store, version: int, lag: str | None) -> Json:
    """The version as it stands now; `lag` says why MLflow does not have the change yet."""
    return {**get_listed(store, version).fields(), "lag": lag}
