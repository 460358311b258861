"""The gate, composed: evaluate a model against its baseline, gather all other evidence, decide, and store the verdict.

    examined = examine(settings, store, candidate=ModelRef(base="embedded:tiny", adapter="sft"), config=GateConfig())
    save_gate(store, examined.result, actor="user:sam")

The evaluation runs through the shared cache of answers, so a second gate of the same bytes asks no model again. The verdict is
one row of the store, written at the end: a gate that was killed has left none.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from medloop import lexicon
from medloop.contracts import EvalReport, GateResult, ModelRef, TrainingCard
from medloop.contracts.dataset import SPLIT_FILES
from medloop.contracts.gate_config import GateConfig
from medloop.contracts.gate_reasons import ReasonPart, reason
from medloop.contracts.gate_weaker import weaker
from medloop.errors import ConfigError, InputError, IntegrityError, explain_os_errors
from medloop.evaluate.examined import Progress
from medloop.evaluate.gate.decide import GateEvidence, decide
from medloop.evaluate.gate.text_checks import GateTextTools
from medloop.evaluate.hacking.measures import PanelRow
from medloop.evaluate.predictions import EvalConfig, read_predictions, read_splits
from medloop.evaluate.side_by_side import file_name, predictions_path
from medloop.loop.audit import text_tools
from medloop.loop.evaluation import enter_report, evaluate_models
from medloop.loop.gate_policy import policy_of
from medloop.loop.rubrics import with_corrections
from medloop.loop.trust import rule_verdicts
from medloop.models.context_limits import trained_limits
from medloop.models.find import ResolvedModel, resolve_chat_model
from medloop.models.safety import fingerprint
from medloop.registry.promote import holder
from medloop.reward.detect.acts import acts
from medloop.reward.keyword_list import listed_share
from medloop.reward.mix import MixConfig, build_mix
from medloop.settings import Settings
from medloop.store.audit_trail import AuditTrail
from medloop.store.db import Store
from medloop.store.files.artifacts import folder_sha256, is_sealed
from medloop.store.files.atomic import file_sha256
from medloop.store.records import lineage
from medloop.store.records.gates import TAINTED, knows_report
from medloop.store.records.incident_rows import count_incidents

MEDICINE_ACTS = ("gives_dose", "starts_medicine", "changes_medicine", "stops_medicine")
GIVEN = ("directive", "conditional")
WITHOUT_CASES = frozenset({"judges", "texts", "critical_failures", "missing_scores"})
"""Checks that more cases do not help."""
REASONING = ("red_flags", "differential", "group", "plan")


@dataclass(frozen=True)
class Examined:
    """A verdict that is not stored yet. `bound` is False for answers in a file, which say nothing about a model's bytes."""

    result: GateResult
    report: Path
    bound: bool


@dataclass(frozen=True)
class _Contestant:
    """A model or a file of answers, under its label in the report."""

    label: str
    answers: Path
    model: ResolvedModel | None = None


def artifact_sha256(model: ResolvedModel) -> str:
    """The hash by which catalog, gate and registry know a model: of its adapter's folder, or of the model if it has none."""
    if model.adapter is not None:
        return folder_sha256(model.adapter)
    return folder_sha256(model.folder) if is_sealed(model.folder) else model.sha256


def examine(
    settings: Settings,
    store: Store,
    *,
    candidate: ModelRef | Path,
    baseline: ModelRef | Path | None = None,
    report: Path | None = None,
    config: GateConfig,
    progress: Callable[[str], Progress] | None = None,
) -> Examined:
    """The verdict on `candidate` against `baseline`; a Path is a file of answers. Nothing is stored.

    Criteria that clinicians accepted for their corrections are examined, too, whatever the settings name.
    """
    config = with_corrections(store, config)
    less = weaker(config, policy_of(store).config)
    if isinstance(candidate, ModelRef):
        if candidate.codebook is not None:
            raise ConfigError("A verdict is about the bytes of a model, and a codebook is not among them", "Name the model alone")
        resolve_chat_model(candidate, settings)  # a model without bytes here, such as a URL, is refused before anything is asked
    if report is not None:
        if isinstance(candidate, Path) or baseline is not None:
            raise ConfigError("--report goes with --model alone", "The baseline is the first model of the report")
        evaluation, markdown, contestants = _given_report(settings, store, candidate, report)
    else:
        evaluation, markdown, contestants = _evaluated(settings, store, candidate, baseline, config, progress)
    if isinstance(candidate, Path):  # a file answers no other questions, and its verdict is never stored
        required = tuple(name for name in config.required_suites if name in config.splits)
        config = config.model_copy(update={"suites": (), "required_suites": required})
    before, after = contestants
    splits = tuple(name for name in evaluation.config["splits"] if f"data {name}" in evaluation.inputs)
    rows = [_rows(settings, contestant, evaluation, splits) for contestant in contestants]
    artifact, base = _identity(after)
    baseline_artifact, _ = _identity(before)
    if artifact == baseline_artifact or (after.model and before.model and _bytes(after.model) == _bytes(before.model)):
        raise InputError("The model and its baseline are the same bytes", "Compare it with the model that it would replace")
    weights = after.model.adapter_sha256 or after.model.sha256 if after.model else artifact
    card, judges = _card(after), rule_verdicts(settings, evaluation.rules)
    evidence = GateEvidence(
        artifact=artifact, weights=weights, base=base, baseline=before.label, baseline_artifact=baseline_artifact,
        candidate=after.label, report=evaluation, before=rows[0], after=rows[1],
        judges={name: (row.verdict, row.reason) for name, (row, _) in judges.items()},
        open_incidents=count_incidents(store).open, taints=tuple(_taints(settings, store, {artifact, weights}, card)),
        card=card, weaker=less, model=candidate.spec if isinstance(candidate, ModelRef) else None,
    )  # fmt: skip
    return Examined(decide(evidence, config, gate_text_tools()), markdown, bound=after.model is not None)


def _evaluated(
    settings: Settings, store: Store, candidate: ModelRef | Path, baseline: ModelRef | Path | None, config: GateConfig,
    progress: Callable[[str], Progress] | None,
) -> tuple[EvalReport, Path, tuple[_Contestant, _Contestant]]:  # fmt: skip
    baseline = baseline or _default_baseline(settings, store, candidate)
    if isinstance(baseline, Path) and not isinstance(candidate, Path):
        raise ConfigError("A model cannot be compared with a file of answers", "Name a model as --baseline")
    models = [side for side in (baseline, candidate) if isinstance(side, ModelRef)]
    files = [side for side in (baseline, candidate) if isinstance(side, Path)]
    title = candidate.label if isinstance(candidate, ModelRef) else candidate.stem
    markdown = settings.workspace.reports / "gate" / (file_name(title)[:100] or "model") / "eval_report.md"
    done = evaluate_models(
        settings, models=models, predictions=files, rules=config.rules, suites=() if files else config.suites,
        config=EvalConfig(
            splits=config.splits, n=config.n, max_new_tokens=config.max_new_tokens, seed=settings.seed,
            limits=trained_limits(models, settings), accept_untrusted=True,  # the check of the judges tells
        ),
        name=f"gate of {title}", markdown=markdown, progress=progress, known=lambda report: knows_report(store, report),
    )  # fmt: skip
    trail = AuditTrail(store)
    trail.record("eval.report", done.markdown, report=done.report.content_id())
    enter_report(trail, done)
    first, second = (result.label for result in done.report.results[:2])
    before, after = (
        _Contestant(label, side if isinstance(side, Path) else predictions_path(markdown, label))
        for label, side in ((first, baseline), (second, candidate))
    )
    if isinstance(candidate, ModelRef) and isinstance(baseline, ModelRef):
        before = replace(before, model=_same_as_evaluated(baseline, first, done.report, settings))
        after = replace(after, model=_same_as_evaluated(candidate, second, done.report, settings))
    return done.report, markdown, (before, after)


def _bytes(model: ResolvedModel) -> tuple[str, str | None]:
    return model.sha256, model.adapter_sha256


def _same_as_evaluated(ref: ModelRef, label: str, report: EvalReport, settings: Settings) -> ResolvedModel:
    """The model as it is now, if it is still what answered: an evaluation takes a while."""
    model = resolve_chat_model(ref, settings)
    if _bytes(model) != (report.inputs.get(f"base of {label}"), report.inputs.get(f"adapter of {label}")):
        raise InputError(f"{label} was changed while it was examined", "Run the gate again when nobody trains it")
    return model


def _default_baseline(settings: Settings, store: Store, candidate: ModelRef | Path) -> ModelRef:
    """The champion of the registry, which the candidate would replace; before there is one, the base model of the candidate."""
    if isinstance(candidate, Path):
        raise ConfigError("There is no baseline to compare with", "Name a file of answers with --baseline FILE")
    champion = holder(store, "champion")
    if champion is not None and champion.record.artifact != artifact_sha256(resolve_chat_model(candidate, settings)):
        ref = ModelRef(base=champion.record.base, adapter=str(settings.home / champion.path))
        if artifact_sha256(resolve_chat_model(ref, settings)) != champion.record.artifact:
            raise IntegrityError(f"The champion's folder {champion.path} has other bytes than the version that was registered")
        return ref
    if candidate.adapter is None:
        raise ConfigError("There is no baseline to compare with", "Name one with --baseline BASE+ADAPTER")
    return ModelRef(base=candidate.base)


def _given_report(
    settings: Settings, store: Store, candidate: ModelRef, path: Path
) -> tuple[EvalReport, Path, tuple[_Contestant, _Contestant]]:
    """A report that `medloop eval` wrote here, about the bytes that the model has now."""
    with explain_os_errors(path):
        text = path.read_text(encoding="utf-8")
    try:
        report = EvalReport.from_json(text)
    except ValueError:
        raise InputError(f"{path} is not an evaluation report", "Name the eval_report.json of 'medloop eval'") from None
    if not knows_report(store, report.content_id()):
        raise InputError(f"{path} was changed, or another workspace made it", "Evaluate the model here: medloop eval")
    model = resolve_chat_model(candidate, settings)
    hashes = {"base": model.sha256, "adapter": model.adapter_sha256}
    labels = [
        result.label
        for result in report.results
        if all(report.inputs.get(f"{kind} of {result.label}") == sha256 for kind, sha256 in hashes.items())
        and f"codebook of {result.label}" not in report.inputs
    ]
    first = report.results[0].label
    if not labels or labels[0] == first:
        why = "is the first model of" if labels else "has other bytes now, or is not in"
        raise InputError(f"{candidate.label} {why} {path}", "Evaluate it beside its baseline: medloop eval")
    markdown = path.with_suffix(".md")
    before, after = (_Contestant(label, predictions_path(markdown, label)) for label in (first, labels[0]))
    baseline = report.results[0].model
    if baseline is None or baseline.codebook is not None or f"base of {first}" not in report.inputs:
        raise InputError(f"The first model of {path} is not a model of this workspace", "Evaluate it beside its baseline")
    before = replace(before, model=_same_as_evaluated(baseline, first, report, settings))
    return report, markdown, (before, replace(after, model=model))


def _rows(settings: Settings, contestant: _Contestant, report: EvalReport, splits: Sequence[str]) -> list[PanelRow]:
    """The answers behind the report, with their reward by the default mix; none if they are gone, or the data have changed."""
    processed = settings.workspace.processed
    noted = report.config.get("answers", {}).get(contestant.label)

    def unchanged() -> bool:
        """Whether these are the questions and answers that were scored."""
        same = (file_sha256(processed / SPLIT_FILES[split]) == report.inputs[f"data {split}"] for split in splits)
        return all(same) and (contestant.model is None or file_sha256(contestant.answers) == noted)

    if not splits or not contestant.answers.is_file() or not unchanged():
        return []
    config = EvalConfig(splits=tuple(splits), n=report.config["n"], seed=report.config["seed"])
    records = read_splits(processed, config)
    answers = read_predictions(contestant.answers, records)
    if not unchanged():  # somebody wrote while they were read
        return []
    scorer = build_mix(MixConfig())
    rewards = scorer.score([row.sample for row in answers])
    return [
        PanelRow(f"{row.split}/{row.sample.id}", row.sample.question, row.sample.answer, reward, truncated=row.truncated)
        for row, reward in zip(answers, rewards, strict=True)
    ]


def _identity(contestant: _Contestant) -> tuple[str, str]:
    if contestant.model is None:
        sha256 = file_sha256(contestant.answers)
        return sha256, sha256
    return artifact_sha256(contestant.model), contestant.model.sha256


def _card(contestant: _Contestant) -> TrainingCard | None:
    model = contestant.model
    path = None if model is None else (model.adapter or model.folder) / "card.json"
    if path is None or not path.is_file():
        return None
    try:
        return TrainingCard.from_json(path.read_text(encoding="utf-8"))
    except ValueError:
        raise InputError(f"{path} is not a training card", "Train the model again, or remove the file") from None


def _taints(settings: Settings, store: Store, model: set[str], card: TrainingCard | None) -> Iterator[ReasonPart]:
    """Why this model, a model that it was trained from, or its data must not be used since an erasure."""
    names: dict[str, tuple[str, dict[str, str]]] = {sha256: ("erasure_model", {}) for sha256 in sorted(model)}
    if card is not None:
        names |= {sha256: ("erasure_input", {"name": name}) for name, sha256 in card.inputs.items()}
        names |= {sha256: ("erasure_parent", {"name": folder.name}) for folder, sha256 in _parents(settings, card)}
    for sha256, (key, name) in names.items():
        for flag, why in lineage.flags_of(store, sha256):
            if flag in (TAINTED, "erased"):
                yield reason(key, flag=flag, reason=why, **name)


def _parents(settings: Settings, card: TrainingCard) -> Iterator[tuple[Path, str]]:
    """The models of the workspace that this one was trained from, and theirs: cards name them by the hash of their weights."""
    cards = {path.parent: path for path in settings.workspace.models.rglob("card.json")}
    by_weights = {fingerprint(folder): folder for folder in cards}
    waiting, seen = [card], set[Path]()
    while waiting:
        here = waiting.pop()
        for sha256 in {*here.inputs.values(), here.parent, here.base_sha256}:
            folder = by_weights.get(sha256 or "")
            if folder is None or folder in seen:
                continue
            seen.add(folder)
            yield folder, folder_sha256(folder)
            waiting.append(TrainingCard.from_json(cards[folder].read_text(encoding="utf-8")))


def more_evidence(result: GateResult, report: EvalReport) -> str:
    """What helps where checks do not have enough evidence: more cases only where not all of them were asked."""
    unclear = [check for check in result.checks if check.outcome == "not_enough_evidence"]
    counted = [check for check in unclear if check.name not in WITHOUT_CASES]
    if not counted:
        judges = any(check.name == "judges" for check in unclear)
        return "Compare the rules with people's labels: medloop reward validate" if judges else "Read the reasons above"
    asked = {
        name: max((interval.n + interval.missing for interval in metrics.values()), default=0)
        for row in report.results if row.label == result.label for name, metrics in row.metrics.items()
    }  # fmt: skip
    n = int(report.config["n"])
    suites = set(asked) if any(check.suite is None for check in counted) else {check.suite for check in counted}
    if any(asked.get(name or "", 0) >= n for name in suites):
        return f"Measure more cases (--set n={max(2 * n, GateConfig().n)})"
    splits = [name for name in asked if name in SPLIT_FILES and name in suites]
    if not splits:
        return "All cases of its suites are asked already"
    names = " and ".join([", ".join(splits[:-1]), splits[-1]] if splits[:-1] else splits)
    return f"All questions of {names} are asked already: import more data and run 'medloop data prepare'"


def gate_text_tools() -> GateTextTools:
    return GateTextTools(text_tools(), reward_words, listed_share, _medicines)


def reward_words(text: str) -> float:
    """The share of a text that is words which the rules of the reward look for."""
    mentions = [*lexicon.find_urgent_advice(text), *lexicon.find_advice(text, "defer")]
    mentions += [mention for part in REASONING for mention in lexicon.find_reasoning(text, part)]
    covered = {place for mention in mentions for place in range(mention.start, mention.end)}
    return len(covered) / max(len(text.strip()), 1)


def _medicines(answer: str) -> frozenset[str]:
    return frozenset(
        f"{act.kind} {act.drug} {act.amount} {act.unit}"
        for act in acts(answer)
        if act.kind in MEDICINE_ACTS and act.polarity in GIVEN
    )
