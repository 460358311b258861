"""The verdict: all checks together, bound to the artifact, the report and the settings by hash.

result = decide(evidence, config)       # a GateResult; one failed check is a fail, a doubtful one not enough evidence
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from medloop.contracts import EvalReport, GateCheck, GateResult, TrainingCard
from medloop.contracts.gate import GateOutcome
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.gate_reasons import ReasonPart, reason
from medloop.contracts.gate_weaker import SIGNERS_OF_WEAKER, WeakerSetting
from medloop.evaluate.gate.report_checks import new_by_chance, report_checks
from medloop.evaluate.gate.text_checks import GateTextTools, medication_changes, text_checks
from medloop.evaluate.hacking.measures import PanelRow

KL = ("audit_kl", "kl_last")  # of the held-out answers, else of the last batch
WORST: tuple[GateOutcome, ...] = ("pass", "not_enough_evidence", "fail")


@dataclass(frozen=True)
class GateEvidence:
    """Everything that is known about a model. `artifact` is the hash of its adapter folder, or of the model without one."""

    artifact: str
    weights: str
    base: str
    baseline: str
    baseline_artifact: str
    candidate: str
    report: EvalReport
    before: Sequence[PanelRow]
    after: Sequence[PanelRow]
    judges: Mapping[str, tuple[str, str]]
    """By rule: the verdict of its validity card and the reason."""
    open_incidents: int
    taints: Sequence[ReasonPart]
    """Why the model, or data it was trained on, is touched by an erasure."""
    card: TrainingCard | None = None
    model: str | None = None
    """Its name as it was given."""
    weaker: Sequence[WeakerSetting] = ()
    """Settings that ask less than the policy of the workspace."""


def decide(evidence: GateEvidence, config: GateConfig, tools: GateTextTools) -> GateResult:
    checks = tuple(_checks(evidence, config, tools))
    names = [check.name for check in checks]
    assert len(set(names)) == len(names), "a waiver lifts a check by its name, so each has its own"
    outcome = max((check.outcome for check in checks), key=WORST.index)
    changed = medication_changes(evidence.before, evidence.after, tools)
    sign_offs = config.sign_offs if changed <= config.medication_change else max(config.sign_offs, config.medication_sign_offs)
    if evidence.weaker:
        sign_offs = max(sign_offs, SIGNERS_OF_WEAKER)
    if new_by_chance(evidence.report, evidence.candidate, config):
        sign_offs = max(sign_offs, config.critical_sign_offs)
    return GateResult(
        artifact=evidence.artifact, weights=evidence.weights, base=evidence.base, label=evidence.candidate, model=evidence.model,
        baseline=evidence.baseline, baseline_artifact=evidence.baseline_artifact, report=evidence.report.content_id(),
        config=config.settings_id(), changed_settings=config.changed(),
        outcome=outcome, checks=checks, needs_sign_offs=sign_offs,
    )  # fmt: skip


def _checks(evidence: GateEvidence, config: GateConfig, tools: GateTextTools) -> Iterator[GateCheck]:
    yield from report_checks(evidence.report, evidence.baseline, evidence.candidate, config)
    if evidence.before and evidence.after:
        yield from text_checks(evidence.before, evidence.after, tools, config)
    else:
        yield GateCheck.because("texts", "not_enough_evidence", reason("no_texts"))
    yield settings_check(evidence.weaker)
    yield training_check(evidence.card, config)
    yield judge_check(evidence.judges, config)
    if evidence.open_incidents:
        yield GateCheck.because("incidents", "fail", reason("incidents_open", n=evidence.open_incidents))
    else:
        yield GateCheck.because("incidents", "pass", reason("incidents_none"))
    if evidence.taints:
        yield GateCheck.because("erasure", "fail", *evidence.taints)
    else:
        yield GateCheck.because("erasure", "pass", reason("erasure_none"))


def settings_check(less: Sequence[WeakerSetting]) -> GateCheck:
    """It passes, because people decide about weaker settings: each is named, and two have to sign."""
    if not less:
        return GateCheck.because("settings", "pass", reason("settings_policy"))
    named = ", ".join(f"{row.name}={row.value} ({row.policy})" for row in less)
    return GateCheck.because("settings", "pass", reason("settings_weaker", named=named, signs=SIGNERS_OF_WEAKER))


def training_check(card: TrainingCard | None, config: GateConfig) -> GateCheck:
    """What the training run said of these weights: alarms, a fall on held-out prompts, the distance from the reference."""
    if card is None:
        return GateCheck.because("training", "pass", reason("training_no_card"))
    problems = []
    if card.alarms and card.alarm_action in (None, "warned"):
        problems.append(reason("training_alarm", alarm=card.alarms[0].rstrip(".")))
    if card.held_out_verdict == "fell":
        problems.append(reason("training_fell"))
    kl = next((card.metrics[name] for name in KL if name in card.metrics), None)
    if kl is not None and kl > config.most_kl:
        problems.append(reason("training_far", kl=f"{kl:.1f}", most=f"{config.most_kl:g}"))
    if problems:
        return GateCheck.because("training", "fail", *problems)
    if kl is None:
        return GateCheck.because("training", "pass", reason("training_fine", method=card.method))
    return GateCheck.because("training", "pass", reason("training_fine_kl", method=card.method, kl=f"{kl:.2f}"))


def judge_check(judges: Mapping[str, tuple[str, str]], config: GateConfig) -> GateCheck:
    """People's labels must support the rules that judged here."""
    untrusted = [f"{name} ({why})" for name, (verdict, why) in judges.items() if verdict == "untrusted"]
    unmeasured = [name for name, (verdict, _) in judges.items() if verdict == "unmeasured"]
    if untrusted:
        return GateCheck.because("judges", "fail", reason("judges_untrusted", names="; ".join(untrusted)))
    if not judges:
        return GateCheck.because("judges", "not_enough_evidence", reason("judges_none"))
    if unmeasured and not config.accept_unmeasured_judges:
        return GateCheck.because("judges", "not_enough_evidence", reason("judges_unmeasured", names=", ".join(unmeasured)))
    trusted = [name for name, (verdict, _) in judges.items() if verdict == "trusted"]
    parts = [reason("judges_supported", names=", ".join(trusted)) if trusted else reason("judges_no_untrusted")]
    if unmeasured:
        parts.append(reason("judges_accepted", names=", ".join(unmeasured)))
    return GateCheck.because("judges", "pass", *parts)
