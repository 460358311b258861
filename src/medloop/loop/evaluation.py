"""Evaluation, composed: models side by side, the weekly inspection, and the reward-hacking panel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from medloop.contracts import Component, ModelRef, Reward, Sample
from medloop.contracts.dataset import SPLIT_FILES
from medloop.data.text.language import detect_language
from medloop.data.text.risk import strata_of
from medloop.evaluate import predictions as answers
from medloop.evaluate.hacking.null_probes import probe
from medloop.evaluate.hacking.panel import Panel, PanelConfig, Round, Row, panel
from medloop.evaluate.hacking.rounds import read_rounds
from medloop.evaluate.inspection.inspect import InspectConfig, Inspection, inspect
from medloop.evaluate.inspection.pool import Pool, Tools, default_files, gather
from medloop.evaluate.predictions import EvalConfig, Generate, Progress
from medloop.evaluate.report import REFERENCE
from medloop.evaluate.side_by_side import Contender, Evaluation, by_name, labelled, predictions_path, side_by_side
from medloop.models import require_packages
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.rules import load_rules
from medloop.reward.score_file import read_samples, sample_key, sample_of
from medloop.settings import Settings
from medloop.store.files.artifacts import verify_if_sealed
from medloop.store.files.atomic import file_sha256

Given = dict[str, Component]
OpenModel = Callable[[ModelRef, Settings], tuple[Mapping[str, str | None], Callable[[], Generate]]]


def open_model(ref: ModelRef, settings: Settings) -> tuple[Mapping[str, str | None], Callable[[], Generate]]:
    """What a model is, by hash, and how to load it; it is loaded only when there is something to ask it."""
    require_packages()
    from medloop.models.generate import load_generator
    from medloop.models.load import resolve as find_model

    found = find_model(ref, settings)
    return {"base": found.sha256, "adapter": found.adapter_sha256}, lambda: load_generator(ref, settings)


def evaluate_models(
    settings: Settings,
    *,
    models: Sequence[ModelRef],
    predictions: Sequence[Path] = (),
    rules: Sequence[str] = ("chain", "emergency", "risk"),
    config: EvalConfig,
    name: str,
    markdown: Path,
    open_model: OpenModel = open_model,
    progress: Callable[[str], Progress] | None = None,
) -> Evaluation:
    """Models and prediction files on the same questions, scored by the same rules; report and answers stay on disk."""
    scorers = load_rules(rules)
    verify_if_sealed(settings.workspace.processed)
    splits = answers.read_splits(settings.workspace.processed, config)
    inputs = {f"data {split}": file_sha256(settings.workspace.processed / SPLIT_FILES[split]) for split in splits}
    names = by_name(predictions, taken=labelled(models))
    made = [Contender(name, answers.read_predictions(path, splits)) for name, path in names.items()]
    inputs.update({f"predictions {name}": file_sha256(path) for name, path in names.items()})
    asked = []
    opened = [(label, ref, *open_model(ref, settings)) for label, ref in labelled(models).items()]
    for label, ref, identity, load in opened:
        inputs.update({f"{kind} of {label}": sha for kind, sha in identity.items() if sha is not None})
        kept = predictions_path(markdown, label)
        asked.append(
            Contender(label, answers.answer_all(splits, load, identity, kept, config, progress and progress(label)), ref)
        )
    reference = [Contender(REFERENCE, samples)] if (samples := answers.references(splits)) else []
    return side_by_side([*asked, *made, *reference], scorers, inputs=inputs, config=config, name=name, markdown=markdown)


def inspect_answers(
    settings: Settings, *, files: Sequence[Path], week: str, config: InspectConfig, output: Path | None = None
) -> tuple[Inspection, Pool]:
    """The answers a medical reviewer reads this week; what has no score on file is scored by the rules."""
    tools = Tools(sample_of, sample_key, build_mix(MixConfig()), strata_of, detect_language)
    workspace = settings.workspace
    pool = gather(files or default_files(workspace), workspace, tools)
    return inspect(pool, workspace, week=week, config=config, output=output), pool


def rl_audit(seed: int) -> Callable[[Sequence[tuple[Sample, Reward]], Sequence[tuple[Sample, Reward]]], list[str]]:
    """What a trainer is handed to see whether its reward is being hacked: the panel of the answers before and now, in words."""

    def audit(before: Sequence[tuple[Sample, Reward]], now: Sequence[tuple[Sample, Reward]]) -> list[str]:

        rounds = [
            Round(name, [Row(sample.id, sample.question, sample.answer, reward) for sample, reward in rows])
            for name, rows in (("before", before), ("now", now))
        ]
        return [alarm.words for alarm in panel(rounds, config=PanelConfig(seed=seed)).alarms]

    return audit


def hacking_panel(
    *,
    scores: Sequence[Path],
    held_out: Sequence[Path],
    answers: Sequence[Path],
    mix: MixConfig,
    given: Given | None = None,
    config: PanelConfig,
) -> Panel:
    """Rounds of training side by side, and what null answers earn by the mix."""
    rounds = read_rounds(scores, held_out, answers, read_samples=read_samples, key_of=sample_key)
    last = [Sample(id=row.id, question=row.question, answer=row.answer) for row in rounds[-1].rows]
    return panel(rounds, probes=probe(build_mix(mix, given), last, seed=config.seed), config=config)
