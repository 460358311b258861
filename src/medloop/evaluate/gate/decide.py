"""The verdict: all checks together, bound to the artifact, the report and the settings by hash.

result = decide(evidence, config)       # a GateResult; one failed check is a fail, a doubtful one not enough evidence
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from medloop.contracts import EvalReport, GateCheck, GateResult, TrainingCard
from medloop.contracts.base import canonical_json, sha256_id
from medloop.contracts.gate import GateOutcome
from medloop.evaluate.gate.config import GateConfig
from medloop.evaluate.gate.report_checks import report_checks
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
    taints: Sequence[str]
    """Why the model, or data it was trained on, is touched by an erasure."""
    card: TrainingCard | None = None


def decide(evidence: GateEvidence, config: GateConfig, tools: GateTextTools) -> GateResult:
    checks = tuple(_checks(evidence, config, tools))
    names = [check.name for check in checks]
    assert len(set(names)) == len(names), "a waiver lifts a check by its name, so each has its own"
    outcome = max((check.outcome for check in checks), key=WORST.index)
    changed = medication_changes(evidence.before, evidence.after, tools)
    sign_offs = config.sign_offs if changed <= config.medication_change else max(config.sign_offs, config.medication_sign_offs)
    return GateResult(
        artifact=evidence.artifact, weights=evidence.weights, base=evidence.base, label=evidence.candidate,
        baseline=evidence.baseline, baseline_artifact=evidence.baseline_artifact, report=evidence.report.content_id(),
        config=sha256_id(canonical_json(config.model_dump(mode="json"))), changed_settings=config.changed(),
        outcome=outcome, checks=checks, needs_sign_offs=sign_offs,
    )  # fmt: skip


def _checks(evidence: GateEvidence, config: GateConfig, tools: GateTextTools) -> Iterator[GateCheck]:
    yield from report_checks(evidence.report, evidence.baseline, evidence.candidate, config)
    if evidence.before and evidence.after:
        yield from text_checks(evidence.before, evidence.after, tools, config)
    else:
        reason = "No answers of both models were at hand, so language, stock text and the panel were not measured."
        yield GateCheck(name="texts", outcome="not_enough_evidence", reason=reason)
    yield training_check(evidence.card, config)
    yield judge_check(evidence.judges, config)
    yield _simple(
        "incidents", evidence.open_incidents == 0, "No safety incident is open.",
        f"{evidence.open_incidents} safety incidents are open; two people have to close them.",
    )  # fmt: skip
    yield _simple("erasure", not evidence.taints, "No data behind this model was erased.", "; ".join(evidence.taints) + ".")


def _simple(name: str, passes: bool, good: str, bad: str) -> GateCheck:
    return GateCheck(name=name, outcome="pass" if passes else "fail", reason=good if passes else bad)


def training_check(card: TrainingCard | None, config: GateConfig) -> GateCheck:
    """What the training run said of these weights: alarms, a fall on held-out prompts, the distance from the reference."""
    if card is None:
        return GateCheck(name="training", outcome="pass", reason="These weights have no training card of medloop.")
    problems = []
    if card.alarms and card.alarm_action in (None, "warned"):
        problems.append(f"its training raised an alarm: {card.alarms[0]}")
    if card.held_out_verdict == "fell":
        problems.append("its held-out reward fell during training")
    kl = next((card.metrics[name] for name in KL if name in card.metrics), None)
    if kl is not None and kl > config.most_kl:
        problems.append(f"it is {kl:.1f} nats per answer from the reference; at most {config.most_kl:g} are allowed")
    distance = f", {kl:.2f} nats from the reference" if kl is not None else ""
    good = f"The training card ({card.method}) has no alarm{distance}."
    return _simple("training", not problems, good, f"{'; '.join(problems)}.")


def judge_check(judges: Mapping[str, tuple[str, str]], config: GateConfig) -> GateCheck:
    """People's labels must support the rules that judged here."""
    untrusted = [f"{name} ({reason})" for name, (verdict, reason) in judges.items() if verdict == "untrusted"]
    unmeasured = [name for name, (verdict, _) in judges.items() if verdict == "unmeasured"]
    if untrusted:
        return GateCheck(name="judges", outcome="fail", reason=f"People's labels do not support: {'; '.join(untrusted)}.")
    if not judges:
        return GateCheck(name="judges", outcome="not_enough_evidence", reason="No rule has judged the answers.")
    if unmeasured and not config.accept_unmeasured_judges:
        reason = f"Nobody has compared these rules with people's judgement: {', '.join(unmeasured)} (medloop reward validate)."
        return GateCheck(name="judges", outcome="not_enough_evidence", reason=reason)
    accepted = f" Not measured, and accepted by the settings: {', '.join(unmeasured)}." if unmeasured else ""
    trusted = [name for name, (verdict, _) in judges.items() if verdict == "trusted"]
    support = f"People's labels support: {', '.join(trusted)}." if trusted else "No rule is untrusted."
    return GateCheck(name="judges", outcome="pass", reason=f"{support}{accepted}")
