"""A model of the registry: one version with everything that led to it, and the aliases that say which version to deploy."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Hash, Text, Timestamp, utc_now
from medloop.contracts.evaluation import Interval
from medloop.contracts.model import Method

Alias = Literal["champion", "challenger"]
AliasAction = Literal["promote", "demote", "rollback"]


class ModelVersion(Contract):
    """A registered model. `artifact` is the hash of its bytes; everything else is read from its card and its evaluation.

    `losses` are the numbers of the training run, `scores` those of the evaluation report by split (or suite) and metric, and
    `gate` is the gate's newest verdict on these bytes when they were registered.
    """

    model: Text
    version: int = Field(ge=1)
    artifact: Hash
    name: Text
    method: Method
    base: Text
    base_sha256: Hash
    parent: Hash | None = None
    inputs: dict[str, Hash]
    losses: dict[str, float] = Field(default_factory=dict)
    scores: dict[str, Interval] = Field(default_factory=dict)
    report: Hash | None = None
    gate: Hash | None = None
    reward: Text | None = Field(None, description="Version of the reward, of a model that RL trained.")
    template: Hash | None = Field(None, description="Hash of the chat template.")
    versions: dict[str, str] = Field(default_factory=dict)
    warnings: tuple[Text, ...] = ()
    registered_by: Text
    timestamp: Timestamp = Field(default_factory=utc_now)

    @property
    def label(self) -> str:
        """As MLflow writes it behind `models:/`."""
        return f"{self.model}/{self.version}"


class AliasChange(Contract):
    """An alias was given to a version or taken away (`version` is None); the newest change of an alias is what holds."""

    change_id: Text
    model: Text
    alias: Alias
    action: AliasAction
    version: int | None = Field(None, ge=1)
    gate: Hash | None = Field(None, description="The gate's verdict that allowed a promotion.")
    changed_by: Text
    reason: str = ""
    timestamp: Timestamp = Field(default_factory=utc_now)
