"""Deployments: the steps that bring a version live, what was noticed about it there, and what the model servers have."""

from typing import Literal, get_args

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text, Timestamp, utc_now

# start … done are the steps of a deployment or rollback, in order; fail ends one that did not get through. The rest is what the
# reconcile loop did (restore, problem) and noticed (alarm), and which bytes may not go live until a person clears them.
DeployKind = Literal[
    "start", "copy", "load", "canary", "switch", "drain", "unload", "delete", "done", "fail", "restore", "problem", "alarm",
    "block", "clear",
]  # fmt: skip
DEPLOY_KINDS: tuple[DeployKind, ...] = get_args(DeployKind)
AlarmKind = Literal["red_team", "critical_flags", "satisfaction", "error_rate", "latency"]
Expectation = Literal["urgent", "answer"]


class DeployEvent(Contract):
    """One thing that happened to a served name. `numbers` are those that led to it, such as a count and its limit."""

    event_id: Text
    kind: DeployKind
    deployment: Text | None = None
    served_name: Text
    artifact: Hash | None = None
    version: int | None = None
    replica: str = ""
    reason: str = ""
    numbers: dict[str, float] = Field(default_factory=dict)
    changed_by: Text = "medloop"
    timestamp: Timestamp = Field(default_factory=utc_now)


class Canary(Contract):
    """A question whose answer shows whether a version may go live. `urgent`: the answer must send the patient to urgent care."""

    canary_id: Text
    language: Literal["zh", "en"]
    question: Text
    expect: Expectation = "answer"


class CanaryVerdict(Contract):
    """Whether an answer to a canary is fit; `reason` never quotes the answer."""

    canary_id: Text
    passed: bool
    reason: Text
    seconds: float = 0.0


class ServedModel(Contract):
    """A model that a server has: an adapter has a parent and the folder it was loaded from as its root.

    The embedded server also says which bytes it has and how many answers run on them; vLLM does not.
    """

    name: Text
    root: str = ""
    parent: str | None = None
    sha256: str | None = None
    requests: int | None = None


class ReplicaState(Contract):
    """What a model server says about itself; `problem` says why it is not used."""

    url: Text
    is_up: bool
    models: tuple[ServedModel, ...] = ()
    problem: str = ""

    @property
    def base(self) -> str | None:
        """The name of the model without an adapter."""
        return next((model.name for model in self.models if model.parent is None), None)

    def find(self, name: str) -> ServedModel | None:
        return next((model for model in self.models if model.name == name), None)


class LiveAlarm(Contract):
    """A reading about the live version that is past its limit."""

    kind: AlarmKind
    reason: Text
    numbers: dict[str, float]
