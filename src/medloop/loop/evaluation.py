"""Evaluation, composed: models side by side, the weekly inspection, and the reward-hacking panel."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from medloop.contracts import ModelRef, Record, Rule, Sample, TrainingCard
from medloop.contracts.dataset import SPLIT_FILES
from medloop.data.text.risk import strata_of
from medloop.evaluate.answer_cache import AnswerCache
from medloop.evaluate.examined import ExaminedModel, Generate, Progress
from medloop.evaluate.hacking.null_probes import probe
from medloop.evaluate.hacking.panel import Panel, PanelConfig, panel
from medloop.evaluate.hacking.rounds import read_rounds
from medloop.evaluate.inspection.pool import AnswerPool, PoolTools, default_files, gather
from medloop.evaluate.inspection.weekly_sample import InspectConfig, Inspection, inspect
from medloop.evaluate.predictions import EvalConfig, answer_all, read_predictions, read_splits, references
from medloop.evaluate.report import REFERENCE
from medloop.evaluate.side_by_side import Evaluation, ModelAnswers, label_files, label_models, predictions_path, side_by_side
from medloop.lexicon.language import detect_language
from medloop.loop.audit import text_tools
from medloop.loop.suites import SuiteTools, load_suites, run_suite
from medloop.loop.trust import refuse_untrusted, rule_verdicts
from medloop.models import require_packages
from medloop.models.find import resolve_chat_model
from medloop.reward.mix import GivenParts, MixConfig, build_mix
from medloop.reward.rules import load_rules
from medloop.settings import Settings
from medloop.store.audit_trail import AuditTrail
from medloop.store.files.artifacts import verify_if_sealed
from medloop.store.files.atomic import file_sha256

DEFAULT_RULES = ("chain", "emergency", "risk")
OpenModel = Callable[[ModelRef, Settings], tuple[Mapping[str, str | None], Callable[[], Generate]]]


def open_model(ref: ModelRef, settings: Settings) -> tuple[Mapping[str, str | None], Callable[[], Generate]]:
    """A model's identity by hash, and how to load it; it is loaded only when an answer is missing."""
    require_packages()
    model = resolve_chat_model(ref, settings)

    def load() -> Generate:
        from medloop.models.generate import load_generator  # torch

        return load_generator(ref, settings)

    return {"base": model.sha256, "adapter": model.adapter_sha256}, load


def check_judges(settings: Settings, rules: Sequence[Rule], *, accept_untrusted: bool) -> dict[str, dict[str, str]]:
    """How far each rule can be trusted, for the report; ConfigError if people disagree with one and nobody accepted that."""
    verdicts = rule_verdicts(settings, {rule.name: rule.version for rule in rules})
    rows = [row for row, _ in verdicts.values()]
    refuse_untrusted(rows, accept_untrusted=accept_untrusted, what="the rules that would judge here")
    return {
        name: {"verdict": row.verdict, "reason": row.reason, "card": card.reward_version if card else ""}
        for name, (row, card) in verdicts.items()
    }


def evaluate_models(
    settings: Settings,
    *,
    models: Sequence[ModelRef],
    predictions: Sequence[Path] = (),
    rules: Sequence[str] = DEFAULT_RULES,
    suites: Sequence[str] = (),
    config: EvalConfig,
    name: str,
    markdown: Path,
    open_model: OpenModel = open_model,
    progress: Callable[[str], Progress] | None = None,
) -> Evaluation:
    """Models and prediction files on the same questions, scored by the same rules, and examined by the same suites.

    Report and answers stay on disk. Without splits in the configuration only the suites run, and those need a model.
    ConfigError if people disagree with one of the rules, unless the configuration accepts that.
    """
    scorers = load_rules(rules) if config.splits else ()
    examinations = load_suites(suites, SuiteTools(settings))
    judged = check_judges(settings, scorers, accept_untrusted=config.accept_untrusted)
    splits = _splits(settings, config)
    inputs = {f"data {split}": file_sha256(settings.workspace.processed / SPLIT_FILES[split]) for split in splits}
    refs = label_models(models)
    files = label_files(predictions, taken=refs)
    from_files = [ModelAnswers(label, read_predictions(path, splits)) for label, path in files.items()]
    inputs.update({f"predictions {label}": file_sha256(path) for label, path in files.items()})
    opened = {label: open_model(ref, settings) for label, ref in refs.items()}
    from_models = []
    for label, (identity, load) in opened.items():
        inputs.update({f"{kind} of {label}": sha for kind, sha in identity.items() if sha is not None})
        model = ExaminedModel(label, identity, load, AnswerCache(answer_folder(settings), identity))
        told: Progress = progress(label) if progress else lambda done, total: None
        answers = answer_all(splits, model, predictions_path(markdown, label), config, told) if splits else []
        results = tuple(run_suite(suite, model, config.suite, told) for suite in examinations)
        from_models.append(ModelAnswers(label, answers, refs[label], _training_alarms(refs[label], settings), results))
    in_data = references(splits)
    columns = [*from_models, *from_files, *([ModelAnswers(REFERENCE, in_data)] if in_data else [])]
    return side_by_side(columns, scorers, inputs=inputs, config=config, name=name, markdown=markdown, trust=judged)


def answer_folder(settings: Settings) -> Path:
    """The answers of all models, shared by all reports and suites."""
    return settings.workspace.reports / "eval" / "answers"


def _splits(settings: Settings, config: EvalConfig) -> dict[str, tuple[Record, ...]]:
    if not config.splits:
        return {}
    verify_if_sealed(settings.workspace.processed)
    return read_splits(settings.workspace.processed, config)


def enter_report(trail: AuditTrail, done: Evaluation) -> None:
    """The catalog knows the report by its content id, and which models and data it is about."""
    trail.register_file(
        "evaluation", done.json, done.report.content_id(), {"name": done.report.name, "inputs": done.report.inputs}
    )


def _training_alarms(ref: ModelRef, settings: Settings) -> tuple[str, ...]:
    """The alarms on the card of an adapter whose weights they are about: not of one that went back to its last good step."""
    card_file = settings.find(ref.adapter) / "card.json" if ref.adapter else None
    if card_file is None or not card_file.is_file():
        return ()
    card = TrainingCard.from_json(card_file.read_text(encoding="utf-8"))
    return card.alarms if card.alarm_action in (None, "warned") else ()


def inspect_answers(
    settings: Settings,
    *,
    files: Sequence[Path],
    questions: Sequence[Path] = (),
    week: str,
    config: InspectConfig,
    output: Path | None = None,
) -> tuple[Inspection, AnswerPool]:
    """The answers a medical reviewer reads this week; those without a score on file are scored by the rules."""
    tools = PoolTools(build_mix(MixConfig()), strata_of, detect_language)
    workspace = settings.workspace
    pool = gather(files or default_files(workspace), workspace, tools, questions)
    return inspect(pool, workspace, week=week, config=config, output=output), pool


def hacking_panel(
    *,
    scores: Sequence[Path],
    held_out: Sequence[Path],
    answers: Sequence[Path],
    questions: Sequence[Path] = (),
    mix: MixConfig,
    given: GivenParts | None = None,
    config: PanelConfig,
) -> Panel:
    """Rounds of training side by side, and what null answers earn by the mix."""
    rounds = read_rounds(scores, held_out, answers, questions)
    last = [Sample(id=row.id, question=row.question, answer=row.answer) for row in rounds[-1].rows]
    return panel(rounds, probes=probe(build_mix(mix, given), last, seed=config.seed), config=config, tools=text_tools())
