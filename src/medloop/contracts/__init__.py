"""The types that all stages share: pure, frozen values. No I/O, no torch."""

from medloop.contracts.assistant import (
    AnswerSnapshot,
    Champion,
    ChooseArm,
    FindPassages,
    FindRules,
    GuardAct,
    InputGuard,
    OutputGuard,
    Passage,
    PassagesFound,
    Route,
    RulesFound,
    RuleUse,
)
from medloop.contracts.base import Contract, canonical_json, sha256_id, utc_now, uuid7
from medloop.contracts.chat import Completion, Conversation, Message, Trace
from medloop.contracts.criterion import CorrectionCriterion, CriterionText
from medloop.contracts.dataset import (
    DatasetCard,
    ErasedRows,
    FeedbackCard,
    FileEntry,
    Origin,
    PreferencePair,
    Prompt,
    Record,
    Source,
)
from medloop.contracts.evaluation import (
    CriticalFailure,
    Difference,
    EvalReport,
    FailureCluster,
    Interval,
    ModelResult,
    PairedSpread,
    ScoredSample,
    SuiteSummary,
)
from medloop.contracts.feedback import AuditEvent, Consent, Correction, Feedback, Incident, IncidentStep, Preference, RedTeamCase
from medloop.contracts.gate import GateCheck, GateResult, SignOff, Waiver
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
from medloop.contracts.model import ModelRef, TrainingCard
from medloop.contracts.registry import AliasChange, ModelVersion
from medloop.contracts.rule import (
    CodebookDelta,
    CodebookEntry,
    CodebookRule,
    CodebookTrial,
    CodebookVersion,
    EntryText,
    EntryWords,
    TrialCase,
)
from medloop.contracts.score import (
    Component,
    Judgement,
    Missing,
    Objective,
    Reward,
    Rule,
    Sample,
    Score,
    ScoredAnswer,
    Scorer,
    Span,
)
from medloop.contracts.suite import (
    LogLikelihood,
    Suite,
    SuiteCase,
    SuiteConfig,
    SuiteMetric,
    SuiteModel,
    SuiteProgress,
    SuiteResult,
)

__all__ = [
    "AliasChange", "AnswerSnapshot", "AuditEvent", "Champion", "ChooseArm", "CodebookDelta", "CodebookEntry",
    "CodebookRule", "CodebookTrial", "CodebookVersion", "Completion",
    "Component", "Consent", "Contract", "Conversation", "Correction", "CorrectionCriterion",
    "CriterionText", "CriticalFailure", "DatasetCard", "Difference",
    "DynamicWeights", "EntryText", "EntryWords",
    "ErasedRows", "EvalReport", "ExpertVerdict", "FailureCluster", "Feedback", "FeedbackCard", "FileEntry",
    "FindPassages", "FindRules", "GateCheck", "GateResult", "GuardAct", "IRSConfig", "Incident", "IncidentStep",
    "InputGuard", "InspectedSample", "Interval", "JobDetail", "JobMetrics", "JobRuntime", "JobStatus", "Judgement",
    "LogLikelihood", "Message", "MetricLine", "Missing", "ModelRef", "ModelResult", "ModelVersion", "Objective", "Origin",
    "OutputGuard", "PairedSpread", "Passage", "PassagesFound", "Preference", "PreferencePair", "Prompt", "Record",
    "RedTeamCase", "Reward", "Route", "Rule", "RuleUse", "RulesFound", "Sample", "Score", "ScoredAnswer", "ScoredSample",
    "Scorer", "SignOff", "Source", "Span", "Suite", "SuiteCase", "SuiteConfig", "SuiteMetric", "SuiteModel", "SuiteProgress",
    "SuiteResult", "SuiteSummary", "Trace", "TrainRequest", "TrainingCard", "TrialCase", "Waiver", "canonical_json", "sha256_id",
    "utc_now", "uuid7",
]  # fmt: skip
