"""`/api/v1/experiments`: plan, start, widen, stop and decide experiments, and read where they stand. Numbers only, no texts.

Reading a report never changes anything: the server's own watch (loop/experiment_watch.py) reads new traces and reaches verdicts.
"""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.feedback import REFUSED
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.experiment.plan import PlanConfig, make_plan
from medloop.loop import experiment as loop
from medloop.privacy.phi.reason import LONGEST_REASON
from medloop.store.db import Store
from medloop.store.records import experiments
from medloop.store.records.experiments import StoredExperiment

router = APIRouter(prefix="/api/v1", tags=["experiments"])

Json = dict[str, Any]
READERS, OWNERS = ("clinician", "engineer", "auditor", "admin"), ("engineer", "admin")
ExperimentReader = Annotated[Caller, Depends(allow(*READERS, scope="experiments"))]
ExperimentOwner = Annotated[Caller, Depends(allow(*OWNERS, scope="experiments"))]
ExperimentPath = Annotated[str, InPath(max_length=64)]
ERRORS: dict[int | str, Json] = {code: REFUSED[code] for code in (401, 403, 422, 429, 503)}
ERRORS |= {404: {"description": "There is no such experiment."}, 409: {"description": "It is in another state."}}


class PlanBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    champion: str = Field(min_length=1, max_length=200, description="Version that answers now, as traces name it.")
    challenger: str = Field(min_length=1, max_length=200)
    site: str = Field(DEFAULT_SITE, min_length=1, max_length=64)
    config: PlanConfig = PlanConfig()


class ShareBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    share: float = Field(gt=0, le=1, description="Share of all users who take part, in both arms together.")


class StopBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=LONGEST_REASON)


class AdoptBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    adopt: bool = Field(description="Adopt the challenger, which needs the verdict 'better', or keep the champion.")
    reason: str = Field(min_length=1, max_length=LONGEST_REASON)


@router.get("/experiments", response_model=Json, responses=ERRORS)
async def list_experiments(
    request: Request, caller: ExperimentReader, site: Annotated[str | None, Query(max_length=64)] = None
) -> Response:  # fmt: skip
    """All experiments, newest first, each with its plan, its state and the verdict it ended with."""
    check_rate(request, caller)
    known = await run_in_threadpool(experiments.every, store_of(request), site=site)
    return JSONResponse({"experiments": [_fields(row) for row in known]})


@router.post("/experiments", status_code=201, response_model=Json, responses=ERRORS)
async def plan_experiment(body: PlanBody, request: Request, caller: ExperimentOwner) -> Response:
    """Plan an experiment; it does not start."""
    check_rate(request, caller)
    return JSONResponse(await run_in_threadpool(_plan, store_of(request), body, caller.user_id), status_code=201)


def _plan(store: Store, body: PlanBody, by: str) -> Json:
    plan = make_plan(body.config, name=body.name, champion=body.champion, challenger=body.challenger, by=by, site=body.site)
    return _fields(loop.plan_experiment(store, plan))


@router.get("/experiments/{experiment_id}", response_model=Json, responses=ERRORS)
async def get_experiment(experiment_id: ExperimentPath, request: Request, caller: ExperimentReader) -> Response:
    """The whole report: estimates with intervals, guards, sample ratio, segments, events and the verdict."""
    check_rate(request, caller)
    report = await run_in_threadpool(loop.report_of, store_of(request), experiment_id)
    return JSONResponse(report.model_dump(mode="json"))


@router.post("/experiments/{experiment_id}/start", response_model=Json, responses=ERRORS)
async def start(experiment_id: ExperimentPath, body: ShareBody, request: Request, caller: ExperimentOwner) -> Response:
    """Start it with a share of all users. 409 if another one runs at the site."""
    check_rate(request, caller)
    call = partial(loop.start, store_of(request), experiment_id, enrolled=body.share, by=caller.user_id)
    return JSONResponse(_fields(await run_in_threadpool(call)))


@router.post("/experiments/{experiment_id}/ramp", response_model=Json, responses=ERRORS)
async def ramp(experiment_id: ExperimentPath, body: ShareBody, request: Request, caller: ExperimentOwner) -> Response:
    """Let a larger share take part; nobody changes arms."""
    check_rate(request, caller)
    call = partial(loop.ramp, store_of(request), experiment_id, enrolled=body.share, by=caller.user_id)
    return JSONResponse(_fields(await run_in_threadpool(call)))


@router.post("/experiments/{experiment_id}/stop", response_model=Json, responses=ERRORS)
async def stop(experiment_id: ExperimentPath, body: StopBody, request: Request, caller: ExperimentOwner) -> Response:
    """Stop it before a verdict; everybody gets the champion."""
    check_rate(request, caller)
    call = partial(loop.stop, store_of(request), experiment_id, by=caller.user_id, reason=body.reason)
    return JSONResponse(_fields(await run_in_threadpool(call)))


@router.post("/experiments/{experiment_id}/verdict", response_model=Json, responses=ERRORS)
async def decide(experiment_id: ExperimentPath, body: AdoptBody, request: Request, caller: ExperimentOwner) -> Response:
    """Record the decision about an experiment that has stopped."""
    check_rate(request, caller)
    call = partial(loop.decide, store_of(request), experiment_id, adopt=body.adopt, by=caller.user_id, reason=body.reason)
    return JSONResponse(_fields(await run_in_threadpool(call)))


def _fields(experiment: StoredExperiment) -> Json:
    verdict = loop.verdict_of(experiment)
    return {
        "plan": experiment.plan.model_dump(mode="json"), "state": experiment.state, "enrolled": experiment.enrolled,
        "verdict": None if verdict is None else verdict.model_dump(mode="json"),
        "events": [event.model_dump(mode="json") for event in experiment.events],
    }  # fmt: skip
