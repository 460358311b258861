"""The settings of the teacher, with their units; `configs/teacher.yaml` lists them all."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

GROUP_TEMPLATE = "group"
EXTRACT_TEMPLATE = "extract"
HARM_TEMPLATE = "harm"
RUBRIC_TEMPLATE = "rubric"  # of criteria that a suite brings
GRADE_TEMPLATE = "grade"  # of what was extracted


class TeacherConfig(BaseModel):
    """The preset is DeepSeek. Its model ids and prices change without notice, so they are settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    base_url: str = Field("https://api.deepseek.com", pattern=r"^https?://[^\s]+$")
    """Any service that speaks OpenAI's chat completions."""
    model: str = Field("deepseek-flash", min_length=1)
    served_models: tuple[str, ...] = ()
    """Names the service may answer under; empty means only `model` itself."""
    fingerprints: tuple[str, ...] = ()
    """Versions of the service that count as the same teacher; empty: the first one seen."""
    stop_on_change: bool = True
    """A new fingerprint stops the run, so that scores of two teachers are never mixed. False only reports it."""
    needs_key: bool = True
    """False for your own service without a key."""
    mode: Literal["absolute", "group"] = "absolute"
    """absolute: each answer is judged on its own. group: all answers to one question are ranked in one call."""
    order_seed: int = 0
    """In a group: shuffles the order in which the answers are shown."""
    position_check: float = Field(0.1, ge=0, le=1)
    """Share of the groups that are ranked again in the opposite order; how far both agree is reported."""
    min_agreement: float = Field(0.6, ge=0, le=1)
    """With less agreement over five groups or more, the rankings are not used: they depend on the places."""
    group_max: int = Field(16, ge=2, le=64)
    """Most different answers to one question; a larger group is missing."""
    template: str = "judge"
    """Of absolute verdicts; a group has its own."""
    passes: Literal[1, 2, 3] = 3
    """2: first the answer's statements are extracted, then only these are graded. 3: each is also checked for harm alone."""
    thinking: bool | None = False
    """DeepSeek's thinking mode; null leaves the parameter out (for services that do not know it)."""
    temperature: float = Field(0.0, ge=0, le=2)
    max_tokens: int = Field(1024, ge=64)
    """Tokens of one reply; doubled once when a reply is truncated."""
    user_id: str | None = None

    deadline_s: float = Field(60.0, gt=0)
    """For one request of a judgement with all its retries, from the first byte sent to the reply that is accepted."""
    attempts: int = Field(3, ge=1, le=10)
    """Most tries of one request of a judgement."""
    backoff_s: float = Field(0.5, ge=0)
    """Wait before the second attempt; doubles each time, with up to 100 % jitter."""
    max_wait_s: float = Field(30.0, ge=0)
    """A longer Retry-After opens the circuit instead."""
    body_bytes: int = Field(2_000_000, ge=10_000)
    """Largest reply, also after decompression."""
    circuit_failures: int = Field(5, ge=1)
    circuit_open_s: float = Field(20.0, gt=0)
    circuit_rounds: int = Field(3, ge=1)
    """The run stops after the circuit has opened this often without a success."""

    in_flight: int = Field(32, ge=1, le=2500)
    """Requests at the same time."""
    requests_per_minute: float = Field(0, ge=0)
    """0 means no limit."""
    tokens_per_minute: float = Field(0, ge=0)
    budget_usd: float = Field(5.0, ge=0)
    """Largest cost of one run."""
    daily_usd: float = Field(25.0, ge=0)
    """Largest cost of all runs of one day (UTC), according to the request log."""
    budget_tokens: int = Field(0, ge=0)
    """Tokens of one run, in and out; 0 means no limit."""

    price_hit: float = Field(0.003, ge=0)
    """USD per million prompt tokens that are in the service's cache."""
    price_miss: float = Field(0.15, ge=0)
    price_out: float = Field(0.60, ge=0)
    peak_factor: float = Field(2.0, ge=1)
    peak_hours_utc: tuple[tuple[int, int], ...] = ((1, 4), (6, 10))
    """More expensive hours, Monday to Friday."""

    max_missing: float = Field(0.2, ge=0, le=1)
    """With a larger share of missing judgements the command fails (the scores are kept)."""
    null_probes: int = Field(50, ge=0)
    """One empty answer is mixed in for this many answers; they must score 0.1 or less. 0 means none."""

    @model_validator(mode="after")
    def _check(self) -> TeacherConfig:
        if any(not 0 <= start < end <= 24 for start, end in self.peak_hours_utc):
            raise ValueError("peak_hours_utc must be pairs of hours like [1, 4]")
        if self.template == GROUP_TEMPLATE:
            raise ValueError("template: set mode to group for rankings, and leave the template as it is")
        if self.template in (EXTRACT_TEMPLATE, HARM_TEMPLATE, GRADE_TEMPLATE):
            raise ValueError("template: set passes to 2 or 3 for several passes, and leave the template as it is")
        return self

    @property
    def used_template(self) -> str:
        if self.mode == "group":
            return GROUP_TEMPLATE
        return GRADE_TEMPLATE if self.passes > 1 and self.template == "judge" else self.template

    @property
    def templates(self) -> tuple[str, ...]:
        """Of the requests for one judgement, in their order."""
        if self.used_template != GRADE_TEMPLATE:
            return (self.used_template,)
        return (EXTRACT_TEMPLATE, *((HARM_TEMPLATE,) if self.passes == 3 else ()), GRADE_TEMPLATE)

    @property
    def accepted_models(self) -> tuple[str, ...]:
        return self.served_models or (self.model,)

    def cost(self, hit: int, miss: int, out: int, when: datetime) -> float:
        """USD for the tokens of one request."""
        peak = when.weekday() < 5 and any(start <= when.hour < end for start, end in self.peak_hours_utc)
        factor = self.peak_factor if peak else 1.0
        return (hit * self.price_hit + miss * self.price_miss + out * self.price_out) * factor / 1e6
