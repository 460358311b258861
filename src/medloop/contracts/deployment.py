"""Deployed adapters, traffic shares, and A/B tests."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from medloop.contracts.base import Contract, Hash, Text, Timestamp, Unit


class Deployment(Contract):
    """An adapter that a server has loaded under `served_name` (a new name for each version)."""

    deployment_id: Text
    served_name: Text
    model: Text
    version: int = Field(ge=1)
    adapter_sha256: Hash
    server: Text
    state: Literal["loading", "serving", "draining", "unloaded", "failed"]
    timestamp: Timestamp


class TrafficSplit(Contract):
    """Stable shares by hash of user and salt; they add up to 1."""

    salt: Text
    shares: dict[str, Unit] = Field(min_length=1)

    @model_validator(mode="after")
    def _adds_up(self) -> TrafficSplit:
        if abs(sum(self.shares.values()) - 1.0) > 1e-9:
            raise ValueError(f"shares add up to {sum(self.shares.values()):g}, not to 1")
        return self


class ExperimentArm(Contract):
    served_name: Text
    n: int = Field(ge=0)
    satisfaction: float | None = None
    completion: float | None = None
    quality: float | None = None
    critical: int = Field(0, ge=0)


class Experiment(Contract):
    """An A/B test and its result so far."""

    experiment_id: Text
    split: TrafficSplit
    arms: tuple[ExperimentArm, ...] = Field(min_length=2)
    verdict: Literal["undecided", "promote", "rollback", "no difference"] = "undecided"
    reason: str = ""
    started: Timestamp
    decided: Timestamp | None = None
