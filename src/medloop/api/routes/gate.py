"""`/api/v1/gate`: verdicts of the gate, and what people add to them. A run of the gate is a job; a worker asks the models.

Who may sign, waive and approve is checked in store/records/gates.py, in the transaction of the change.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.feedback import REFUSED
from medloop.api.task_jobs import FILED, FULL, JobOut, Wait, filed, job_fields, look, place_of
from medloop.contracts import GateResult
from medloop.contracts.base import Timestamp
from medloop.contracts.gate import GateOutcome
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.gate_weaker import WeakerSetting
from medloop.jobs.submit import submit_gate
from medloop.loop.gate_policy import adopt, own_settings, policy_of, proposals
from medloop.store.db import Store
from medloop.store.records import gates
from medloop.store.records.gates import MAX_TEXT, SIGNERS, WAIVER_APPROVERS, WAIVER_AUTHORS

router = APIRouter(prefix="/api/v1/gate", tags=["gate"])

Json = dict[str, Any]
READERS = ("clinician", "engineer", "auditor", "admin")
RUNNERS = ("engineer", "admin")
GateReader = Annotated[Caller, Depends(allow(*READERS, scope="gate"))]
GateSigner = Annotated[Caller, Depends(allow(*SIGNERS, scope="gate"))]
WaiverAuthor = Annotated[Caller, Depends(allow(*WAIVER_AUTHORS, scope="gate"))]
GateRunner = Annotated[Caller, Depends(allow(*RUNNERS, scope="gate"))]
WaiverApprover = Annotated[Caller, Depends(allow(*WAIVER_APPROVERS, scope="gate"))]
ModelName = Annotated[str, Field(min_length=1, max_length=300, description="BASE or BASE+ADAPTER, in the workspace.")]
GateId = Annotated[str, InPath(min_length=6, max_length=80)]
ERRORS: dict[int | str, Json] = {code: REFUSED[code] for code in (401, 403, 422, 429, 503)}


class SignBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    approved: bool = Field(description="False refuses the model; that needs a comment.")
    comment: str = Field("", max_length=MAX_TEXT)


class WaiverBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    check: str = Field(min_length=1, max_length=300, description="The name of a check that did not pass.")
    reason: str = Field(min_length=1, max_length=MAX_TEXT)
    expires: Timestamp


class GateRunBody(BaseModel):
    """Which model to decide about. Without a baseline: the champion, else the base of the model."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"model": "embedded:tiny+sft"}]})

    model: ModelName
    baseline: ModelName | None = None
    settings: GateConfig = Field(
        default_factory=GateConfig, description="As in configs/gate.yaml; others are those of the policy."
    )


class GateVerdictOut(BaseModel):
    """The verdict that was stored; `refusal` says why the model may not be promoted now."""

    gate: str
    artifact: str
    label: str
    baseline: str
    outcome: GateOutcome
    checks: dict[GateOutcome, int] = Field(examples=[{"pass": 41, "fail": 1}])
    needs_sign_offs: int
    refusal: str | None
    report: str


class GateJobOut(JobOut):
    """`result` is set when the state is `succeeded`: the run ended; its `outcome` says whether the model passed."""

    result: GateVerdictOut | None = None


class WeakerOut(BaseModel):
    """A setting that asks less than the policy, both values as JSON."""

    name: str = Field(examples=["margin"])
    value: str = Field(examples=["0.2"])
    policy: str = Field(examples=["0.05"])


class ProposalOut(BaseModel):
    """Settings that one clinician asked for; they hold once another one adopts the same."""

    policy: str
    by: str
    timestamp: Timestamp
    settings: GateConfig
    weaker: list[WeakerOut]


class PolicyOut(BaseModel):
    """What every model has to show. `adopted_by` is empty, and `since` null, for the defaults of medloop."""

    settings: GateConfig
    changed: dict[str, str] = Field(description="The settings that differ from the defaults of medloop, as JSON.")
    adopted_by: list[str]
    since: Timestamp | None
    waiting: list[ProposalOut]


class PolicyBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"settings": {"sign_offs": 2}}]})

    settings: GateConfig = Field(description="As in configs/gate.yaml; settings that are not named stay as the policy has them.")


class AdoptedOut(BaseModel):
    """`waits`: the settings are weaker, so the policy stays as it was until a second clinician adopts the same ones."""

    waits: bool
    weaker: list[WeakerOut]


@router.get("/policy", responses=ERRORS)
def show_policy(request: Request, caller: GateReader) -> PolicyOut:
    """What every model has to show in this workspace, who decided that, and what waits for a second clinician."""
    store = store_of(request)
    policy = policy_of(store)
    waiting = [
        ProposalOut(policy=row.policy, by=row.by, timestamp=row.timestamp, settings=row.config, weaker=_weaker(row.weaker))
        for row in proposals(store)
    ]
    return PolicyOut(
        settings=policy.config,
        changed=policy.config.changed(),
        adopted_by=list(policy.adopted_by),
        since=policy.since,
        waiting=waiting,
    )


@router.post("/policy", responses=ERRORS)
def adopt_policy(body: PolicyBody, request: Request, caller: GateSigner) -> AdoptedOut:
    """Adopt settings as the policy, as a clinician. The same as 'medloop gate policy adopt'."""
    check_rate(request, caller)
    store = store_of(request)
    adopted = adopt(store, own_settings(store, body.settings), by=caller.user_id)
    return AdoptedOut(waits=adopted.waits, weaker=_weaker(adopted.weaker))


def _weaker(rows: tuple[WeakerSetting, ...]) -> list[WeakerOut]:
    return [WeakerOut(**row._asdict()) for row in rows]


@router.post("/runs", status_code=202, responses=ERRORS | FILED | FULL)
def start_run(body: GateRunBody, request: Request, response: Response, caller: GateRunner, wait: Wait = 0) -> GateJobOut:
    """Examine a model of this workspace against its baseline, and store the verdict. The same as 'medloop gate --model'."""
    check_rate(request, caller)
    store = store_of(request)
    with place_of(request, caller, "GATE"):
        job_id = submit_gate(body.model, body.baseline, own_settings(store, body.settings), store.settings, actor=caller.user_id)
    return filed(_run(request, job_id, wait), response)


@router.get("/runs/{job_id}", responses=ERRORS)
def show_run(job_id: str, request: Request, caller: GateReader, wait: Wait = 0) -> GateJobOut:
    """The state of a run, and its verdict once it has one."""
    return _run(request, job_id, wait)


def _run(request: Request, job_id: str, wait: int) -> GateJobOut:
    seen = look(request, job_id, "GATE", wait)
    return GateJobOut.model_validate(job_fields(seen, "gate/runs") | {"result": seen.result})


@router.get("", responses=ERRORS)
def list_gates(request: Request, caller: GateReader, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> Json:
    """The verdicts, newest first, without their checks."""
    results = gates.list_gates(store_of(request), limit=limit)
    return {"items": [_summary(result) for result in results]}


@router.get("/{gate}", responses=ERRORS)
def get_gate(gate: GateId, request: Request, caller: GateReader) -> Json:
    """One verdict with its checks, sign-offs and all waivers of the model; `refusal` says why it may not be promoted now."""
    return _detail(store_of(request), gate)


@router.post("/{gate}/sign", responses=ERRORS)
def sign(gate: GateId, body: SignBody, request: Request, caller: GateSigner) -> Json:
    """Stand for a verdict, or refuse it. A later sign-off of the same person counts instead of the earlier one; both stay."""
    check_rate(request, caller)
    sign_off = gates.sign(store_of(request), gate, by=caller.user_id, approved=body.approved, comment=body.comment)
    return sign_off.model_dump(mode="json")


@router.post("/{gate}/waivers", responses=ERRORS)
def waive(gate: GateId, body: WaiverBody, request: Request, caller: WaiverAuthor) -> Json:
    """Ask to lift one check of a model. It lifts nothing until a clinician other than the caller approves it."""
    check_rate(request, caller)
    store = store_of(request)
    artifact = gates.get_gate(store, gate).artifact
    waiver_id = gates.request_waiver(
        store, artifact, check=body.check, reason=body.reason, author=caller.user_id, expires=body.expires
    )
    return {"waiver_id": waiver_id, "state": "waits for a second person"}


@router.post("/waivers/{waiver_id}/approve", responses=ERRORS)
def approve(waiver_id: Annotated[str, InPath(max_length=80)], request: Request, caller: WaiverApprover) -> Json:
    """Approve the waiver of somebody else."""
    check_rate(request, caller)
    return gates.approve_waiver(store_of(request), waiver_id, by=caller.user_id).model_dump(mode="json")


def _summary(result: GateResult) -> Json:
    return {"gate": result.content_id(), **result.model_dump(mode="json", exclude={"checks"}, exclude_none=True)}


def _detail(store: Store, gate: str) -> Json:
    result = gates.get_gate(store, gate)
    gate_id = result.content_id()
    lifted = gates.with_waivers(store, result).model_dump(mode="json", exclude_none=True)
    return {
        "gate": gate_id, **lifted,
        "sign_offs": [row.model_dump(mode="json") for row in gates.sign_offs_of(store, gate_id)],
        "waivers": [row.as_json() for row in gates.waiver_rows(store, result.artifact)],
        "refusal": gates.promotion_refusal(store, result.artifact),
    }  # fmt: skip
