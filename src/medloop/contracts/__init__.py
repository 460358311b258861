"""The nouns of the loop: pure, frozen values that every stage shares. No I/O, no torch."""

from medloop.contracts.base import Contract, canonical_json, sha256_id, utc_now, uuid7
from medloop.contracts.chat import Completion, Conversation, Message, Trace
from medloop.contracts.dataset import DatasetCard, FileEntry, Origin, PreferencePair, Prompt, Record, Source
from medloop.contracts.deployment import Deployment, Experiment, ExperimentArm, TrafficSplit
from medloop.contracts.evaluation import (
    Difference,
    EvalReport,
    GateCheck,
    GateResult,
    Interval,
    ModelResult,
    ScoredSample,
)
from medloop.contracts.feedback import AuditEvent, Consent, Correction, Feedback, Incident, Preference, RedTeamCase
from medloop.contracts.inspection import ExpertVerdict, InspectedSample
from medloop.contracts.job import (
    DynamicWeights,
    IRSConfig,
    JobDetail,
    JobMetrics,
    JobRuntime,
    JobStatus,
    MetricLine,
    TrainRequest,
)
from medloop.contracts.model import ModelRef, RegisteredModel, TrainingCard
from medloop.contracts.rule import CodebookDelta, CodebookRule
from medloop.contracts.score import Component, Judgement, Missing, Reward, Rule, Sample, Score, ScoredAnswer, Scorer, Span

__all__ = [
    "AuditEvent",
    "CodebookDelta",
    "CodebookRule",
    "Completion",
    "Component",
    "Consent",
    "Contract",
    "Conversation",
    "Correction",
    "DatasetCard",
    "Deployment",
    "Difference",
    "DynamicWeights",
    "EvalReport",
    "Experiment",
    "ExperimentArm",
    "ExpertVerdict",
    "Feedback",
    "FileEntry",
    "GateCheck",
    "GateResult",
    "IRSConfig",
    "Incident",
    "InspectedSample",
    "Interval",
    "JobDetail",
    "JobMetrics",
    "JobRuntime",
    "JobStatus",
    "Judgement",
    "Message",
    "MetricLine",
    "Missing",
    "ModelRef",
    "ModelResult",
    "Origin",
    "Preference",
    "PreferencePair",
    "Prompt",
    "Record",
    "RedTeamCase",
    "RegisteredModel",
    "Reward",
    "Rule",
    "Sample",
    "Score",
    "ScoredAnswer",
    "ScoredSample",
    "Scorer",
    "Source",
    "Span",
    "Trace",
    "TrafficSplit",
    "TrainRequest",
    "TrainingCard",
    "canonical_json",
    "sha256_id",
    "utc_now",
    "uuid7",
]
