"""Codebook rules: corrections that work at once, without training (the fast loop)."""

from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Text, Timestamp, uuid7


class CodebookRule(Contract):
    rule_id: Text = Field(default_factory=lambda: f"rule_{uuid7()}")
    text: Text
    scope: Text
    triggers: tuple[Text, ...] = ()
    evidence: tuple[Text, ...] = ()
    helpful: int = Field(0, ge=0)
    harmful: int = Field(0, ge=0)
    state: Literal["proposed", "active", "retired"] = "proposed"
    approver: Text | None = None
    expires: Timestamp | None = None
    supersedes: Text | None = None
    timestamp: Timestamp


class CodebookDelta(Contract):
    """A curator's change: add, edit or retire, with the reason."""

    action: Literal["add", "edit", "retire"]
    rule: CodebookRule
    reason: Text
