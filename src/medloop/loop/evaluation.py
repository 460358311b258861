"""Evaluation, composed: models side by side, the weekly inspection, and the reward-hacking panel."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from medloop import __version__
from medloop.codebook.retrieve import Retriever
from medloop.contracts import EvalReport, ModelRef, Record, Rule, Sample, TrainingCard
from medloop.contracts.dataset import SPLIT_FILES
from medloop.data.text.risk import strata_of
from medloop.errors import ConfigError, InputError, explain_os_errors
from medloop.evaluate.answer_cache import AnswerCache
from medloop.evaluate.cached_rule import CachedRule, save_scores
from medloop.evaluate.early_stop import is_precise
from medloop.evaluate.examined import ExaminedModel, Generate, Progress
from medloop.evaluate.failure_clusters import Embed
from medloop.evaluate.hacking.null_probes import probe
from medloop.evaluate.hacking.panel import Panel, PanelConfig, panel
from medloop.evaluate.hacking.rounds import read_rounds
from medloop.evaluate.inspection.pool import AnswerPool, PoolTools, default_files, gather
from medloop.evaluate.inspection.weekly_sample import InspectConfig, Inspection, inspect
from medloop.evaluate.people import Verdicts
from medloop.evaluate.predictions import EvalConfig, answer_all, read_predictions, read_splits, references
from medloop.evaluate.report import REFERENCE
from medloop.evaluate.side_by_side import (
    Evaluation,
    ModelAnswers,
    label_files,
    label_models,
    predictions_path,
    same_report,
    score_models,
    side_by_side,
)
from medloop.lexicon.language import detect_language
from medloop.loop.audit import text_tools
from medloop.loop.rule_guard import EnforcedRules
from medloop.loop.suites import SuiteTools, load_suites, run_suite
from medloop.loop.trust import refuse_untrusted, rule_verdicts
from medloop.loop.url_model import UrlGenerator, is_url, parse_url
from medloop.models import quick_imports, require_packages
from medloop.models.codebook_prompt import PromptRules, read_codebook
from medloop.models.find import parse_model, resolve_chat_model
from medloop.reward.mix import GivenParts, MixConfig, build_mix
from medloop.reward.rules import RULES, load_rules
from medloop.settings import Settings
from medloop.store.audit_trail import AuditTrail
from medloop.store.db import open_store
from medloop.store.files.artifacts import verify_if_sealed
from medloop.store.files.atomic import file_sha256
from medloop.store.records.codebook import live as live_codebook

if TYPE_CHECKING:
    from medloop.models.encode import Encoder

LIVE = "live"  # instead of a file of rules: the codebook of the workspace
DEFAULT_RULES = ("chain", "emergency", "risk")
OpenModel = Callable[[ModelRef, Settings], tuple[Mapping[str, str | None], Callable[[], Generate]]]


def parse_examined(spec: str) -> ModelRef:
    """`BASE[+ADAPTER][,codebook=FILE|live]` or `URL#NAME[,codebook=FILE|live]`, as `--model` gives it."""
    model, comma, codebook = spec.partition(",codebook=")
    if comma and not codebook:
        raise ConfigError(f"--model is '{spec}', which names no codebook", "Example: embedded:tiny+sft,codebook=rules.md")
    ref = ModelRef(base=parse_url(model).spec) if is_url(model) else parse_model("--model", model)
    return ref.model_copy(update={"codebook": codebook or None})


def open_model(ref: ModelRef, settings: Settings) -> tuple[Mapping[str, str | None], Callable[[], Generate]]:
    """A model's identity by hash, and how to load it; it is loaded only when an answer is missing."""
    if is_url(ref.base):
        address, key = parse_url(ref.base), settings.evaluate.key.get_secret_value()
        return address.identity, lambda: UrlGenerator(address, key)
    require_packages()
    model = resolve_chat_model(ref, settings)

    def load() -> Generate:
        with quick_imports():
            from medloop.models.generate import load_generator  # torch

        return load_generator(ref, settings)

    return {"base": model.sha256, "adapter": model.adapter_sha256}, load


def examined_model(label: str, ref: ModelRef, settings: Settings, opened: OpenModel, config: EvalConfig) -> ExaminedModel:
    """A model as suites see it, with its codebook and the shared cache of answers."""
    identity, load = opened(ref, settings)
    codebook = _codebook(ref.codebook, settings) if ref.codebook else None
    if codebook is not None:
        identity = {**identity, "codebook": codebook.sha256}
    cache = AnswerCache(answer_folder(settings), identity, fresh=config.fresh)
    return ExaminedModel(label, identity, load, cache, codebook=codebook, limits=config.limits)


def _codebook(name: str, settings: Settings) -> PromptRules:
    """`live`: the codebook of the workspace with its sentences and its guard, as users meet it; else a file of rules."""
    if name != LIVE:
        return read_codebook(settings.find(name))
    with open_store(settings) as store:
        current = live_codebook(store)
    if not current.entries:
        raise InputError("The codebook has no live entry", "Approve one first: medloop codebook list --state proposed")
    return EnforcedRules(Retriever(current.entries, current.sha256), current.sha256)


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
    against: Path | None = None,
    people: Verdicts | None = None,
    expected_inputs: Mapping[str, str] | None = None,
    known: Callable[[str], bool] | None = None,
) -> Evaluation:
    """Models and prediction files on the same questions, scored by the same rules, and examined by the same suites.

    Report and answers stay on disk. Without splits in the configuration only the suites run, and those need a model.
    The trend of the issues is against the report `against`, or else the one that this one replaces. `people` are verdicts on
    answers. With `expected_inputs`, other data or models than these are refused. Where nothing has changed and
    `known` has seen the report that is there, by its id, it stays: a file that somebody edited is made again.
    ConfigError if people disagree with one of the rules, unless the configuration accepts that.
    """
    earlier = earlier_report(against, markdown)
    scorers = _scorers(rules, settings) if config.splits else ()
    examinations = load_suites(suites, SuiteTools(settings, tuple(models)))
    judged = check_judges(settings, scorers, accept_untrusted=config.accept_untrusted)
    splits = _splits(settings, config)
    inputs = {f"data {split}": file_sha256(settings.workspace.processed / SPLIT_FILES[split]) for split in splits}
    refs = label_models(models)
    files = label_files(predictions, taken=refs)
    for path in files.values():
        read_predictions(path, splits)  # a bad file is told before a model is asked
    inputs.update({f"predictions {label}": file_sha256(path) for label, path in files.items()})
    examined = [examined_model(label, ref, settings, open_model, config) for label, ref in refs.items()]
    for model in examined:
        inputs.update({f"{kind} of {model.label}": sha for kind, sha in model.identity.items() if sha is not None})

    if changed := [what for what, sha in (expected_inputs or {}).items() if inputs.get(what) != sha]:
        raise ConfigError(f"'{changed[0]}' is not what it was for the earlier report", "Evaluate anew, without --again")

    spec = {
        "models": list(refs), "rules": list(rules), "suites": list(suites), "predictions": [str(path) for path in predictions],
        "medloop": [__version__],
        "alarms": [f"{label}: {alarm}" for label, ref in refs.items() for alarm in _training_alarms(ref, settings)],
    }  # fmt: skip
    may_be_same = not suites and people is None and against is None and not config.fresh
    if may_be_same and all(isinstance(rule, CachedRule) for rule in scorers) and not any(is_url(ref.base) for ref in models):
        same = same_report(markdown, inputs=inputs, config=config, rules=scorers, name=name, trust=judged, spec=spec)
        if same is not None and known is not None and known(same.report.content_id()):
            if all(predictions_path(markdown, label).is_file() for label in refs):
                return same

    def look(n: int) -> list[ModelAnswers]:
        """All models on the first `n` questions of each split and `n` cases of each suite; earlier answers are in the cache."""
        first = {split: records[:n] for split, records in splits.items()}
        columns = []
        for model in examined:
            label, ref = model.label, refs[model.label]
            told: Progress = progress(label) if progress else lambda done, total: None
            answers = answer_all(first, model, predictions_path(markdown, label), config, told) if first else []
            results = tuple(run_suite(suite, model, config.suite(n), told) for suite in examinations)
            if n == config.looks[-1]:
                model.unload()
            columns.append(ModelAnswers(label, answers, ref, _training_alarms(ref, settings), results))
        columns += [ModelAnswers(label, read_predictions(path, first)) for label, path in files.items()]
        in_data = references(first)
        return [*columns, *([ModelAnswers(REFERENCE, in_data)] if in_data else [])]

    for n in config.looks:
        columns = look(n)
        scored = score_models(columns, scorers)
        save_scores(scorers)
        if n == config.looks[-1] or is_precise({c.label: scored[c.label] for c in columns if c.label != REFERENCE}, config):
            break
    return side_by_side(
        columns, scorers, scored, inputs=inputs, config=config, name=name, markdown=markdown, trust=judged, earlier=earlier,
        people=people, embed=failure_encoder(settings), spec=spec,
    )  # fmt: skip


def evaluate_again(
    settings: Settings, report: Path, *, people: Verdicts, markdown: Path, open_model: OpenModel = open_model
) -> Evaluation:
    """An earlier evaluation with what people have said about its answers since; data and models must be the same.

    Its answers come from the cache, so no model is asked. The earlier report stays as it is.
    """
    earlier = read_report(report)
    spec = earlier.config.get("spec")
    if spec is None:
        raise InputError(f"{report} does not say how it was made", "Evaluate anew, without --again")
    fields = {name: value for name, value in earlier.config.items() if name in EvalConfig.model_fields}
    config = EvalConfig.model_validate({**fields, "fresh": False})
    return evaluate_models(
        settings, models=[result.model for result in earlier.results if result.model is not None],
        predictions=[Path(name) for name in spec["predictions"]], rules=spec["rules"], suites=spec["suites"], config=config,
        name=earlier.name, markdown=markdown, open_model=open_model, against=report, people=people,
        expected_inputs=earlier.inputs,
    )  # fmt: skip


def earlier_report(against: Path | None, markdown: Path) -> EvalReport | None:
    """The report to compare the issues with. One that is replaced may be of an older form; then there is no trend."""
    if against is not None:
        return read_report(against)
    try:
        return read_report(markdown.with_suffix(".json"))
    except InputError:
        return None


def read_report(path: Path) -> EvalReport:
    with explain_os_errors(path):
        text = path.with_suffix(".json").read_text(encoding="utf-8")
    try:
        return EvalReport.from_json(text)
    except ValueError:
        raise InputError(f"{path} is not a report of medloop eval", "Name its eval_report.json or eval_report.md") from None


def failure_encoder(settings: Settings) -> Embed | None:
    """The sentence encoder that `reward.encoder` names, loaded when there are failures to compare; None: words decide."""
    name = settings.reward.encoder
    if not name:
        return None
    require_packages()

    @cache
    def encoder() -> "Encoder":
        from medloop.models.encode import load_encoder  # torch

        return load_encoder(name, settings)

    return lambda texts: encoder().encode(texts)


def round_report(settings: Settings, number: int) -> Path:
    """The report of an RL round."""
    return settings.workspace.reports / "rl_stage" / f"eval_report_round{number}.md"


def answer_folder(settings: Settings) -> Path:
    """The answers of all models, shared by all reports and suites."""
    return settings.workspace.answer_cache


def _scorers(names: Sequence[str], settings: Settings) -> tuple[Rule, ...]:
    """The rules; scores of medloop's own are kept, because their version says everything about them."""
    folder = answer_folder(settings)
    return tuple(CachedRule(rule, folder) if RULES.get(rule.name) is rule else rule for rule in load_rules(names))


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
