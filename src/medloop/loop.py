"""The closed loop: the stages in order, each handed the product of the one before.

Stages are siblings and never import one another; what one needs of another is passed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from medloop.errors import ConfigError, speaking_of
from medloop.settings import Settings, Workspace, resolve

if TYPE_CHECKING:
    from medloop.contracts import Component, Contract, ModelRef, Reward, Sample, Scorer
    from medloop.data.from_feedback import Built, FeedbackConfig
    from medloop.data.progress import Progress as Steps
    from medloop.evaluate.answers import EvalConfig, Generate, Progress
    from medloop.evaluate.inspect import InspectConfig, Inspection
    from medloop.evaluate.inspect_read import Pool
    from medloop.evaluate.panel import Panel, PanelConfig
    from medloop.evaluate.side_by_side import Evaluation
    from medloop.feedback.metrics import FeedbackMetrics, MetricsConfig
    from medloop.feedback.propose import Proposed
    from medloop.feedback.queue import QueueConfig
    from medloop.privacy.erase import Jobs, Proof, Request
    from medloop.reward.combine import MixConfig
    from medloop.reward.file import FileSummary
    from medloop.store.db import Store

    Given = dict[str, Component]
    OpenModel = Callable[[ModelRef, Settings], tuple[Mapping[str, str | None], Callable[[], Generate]]]

CONFIG_TEMPLATE = """\
# Settings of this workspace. Each line can also be given as an environment variable (MEDLOOP_SEED=7)
# or for one command (medloop --set seed=7 ...). 'medloop config show' prints all of them with their origin.

# model: embedded:tiny        # embedded:NAME, a local folder, or a hub id
# database_url: postgresql+psycopg://user@host/medloop   # empty: SQLite in this folder
# device: auto                # auto, cpu, cuda
# seed: 42
"""


def init_workspace(folder: Path, flags: Mapping[str, object] | None = None) -> bool:
    """Lay out a workspace; True if it is new. Repeating it completes what is missing and changes nothing else."""
    home = folder.expanduser().absolute()
    if home.exists() and not home.is_dir():
        raise ConfigError(f"{folder} is a file", "Name a folder that does not exist yet, or an empty one")
    workspace = Workspace(home)
    new = not workspace.config.exists()
    with speaking_of(home):
        for path in workspace.folders():
            path.mkdir(parents=True, exist_ok=True)
        workspace.keys.chmod(0o700)
        if new:
            home.chmod(0o700)  # it will hold what patients wrote
            workspace.config.write_text(CONFIG_TEMPLATE, encoding="utf-8")
    _start_books(resolve({**(flags or {}), "home": home}).settings)
    return new


def _start_books(settings: Settings) -> None:
    """The encryption key and the store at its newest schema; the audit log's first row is the workspace's birth."""
    from medloop.store.db import ensure_master_key, upgrade

    ensure_master_key(settings)
    before, _ = upgrade(settings)
    if before is None:
        with open_books(settings) as books:
            books.note("workspace.init", settings.home)


def actor() -> str:
    """Who is at the keyboard, for the audit log."""
    import getpass

    try:
        return f"user:{getpass.getuser()}"
    except (KeyError, OSError):  # a container may run under a number without a name
        return f"uid:{os.getuid()}"


@dataclass(frozen=True)
class Books:
    """The catalog and the audit log, open while a stage works."""

    store: Store

    def enter(self, kind: str, path: Path, card: Contract) -> None:
        """A finished folder, with its card; the same content twice is one entry."""
        from medloop.store.catalog import register

        register(self.store, kind, path, card.model_dump(mode="json", exclude_none=True), actor=actor())

    def note(self, action: str, path: Path, **detail: str | int | float | bool) -> None:
        """Something done that leaves no sealed folder."""
        from medloop.contracts import AuditEvent
        from medloop.store import audit

        home = self.store.settings.home
        subject = path.relative_to(home).as_posix() if path.is_relative_to(home) else str(path)
        with self.store.write() as conn:
            audit.append(conn, AuditEvent(actor=actor(), action=action, subject=subject, detail=detail))


@contextmanager
def open_books(settings: Settings) -> Iterator[Books]:
    """Opened before the work, so that a missing key or an unreachable database stops it early, not at its end."""
    from medloop.store.db import open_store

    with open_store(settings) as store:
        yield Books(store)


def open_model(ref: ModelRef, settings: Settings) -> tuple[Mapping[str, str | None], Callable[[], Generate]]:
    """What a model is, by hash, and how to load it; it is loaded only when there is something to ask it."""
    from medloop.models import require_packages

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
    from medloop.evaluate import answers
    from medloop.evaluate.report import REFERENCE
    from medloop.evaluate.side_by_side import Contender, by_name, labelled, predictions_path, side_by_side
    from medloop.reward.rules import load_rules
    from medloop.store.artifacts import verify_if_sealed
    from medloop.store.files import file_sha256

    scorers = load_rules(rules)
    verify_if_sealed(settings.workspace.processed)
    splits = answers.read_splits(settings.workspace.processed, config)
    inputs = {f"data {split}": file_sha256(settings.workspace.processed / answers.FILE_OF[split]) for split in splits}
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


def hand_in(settings: Settings, sources: Mapping[str, str], *, progress: Callable[[int, int], None] | None = None) -> Given:
    """The given parts of a reward by name, each from its source; models are loaded when they are first asked.

    `teacher` takes a YAML file like configs/teacher.yaml (empty: DeepSeek as preset), `model` a reward model, `rel`, `faith` and
    `conc` a YAML file like configs/dw.yaml (empty: the embedded encoder). Any other name takes `module:object`, your own.
    """
    from medloop.reward.combine import load_component

    given: dict[str, Component] = {}
    encoders: dict[str, Mapping[str, Component]] = {}  # rel and faith of one file share their models
    for name, source in sources.items():
        if name == "teacher":
            given[name] = _teacher(settings, source, progress)
        elif name == "model":
            given[name] = _reward_model(settings, source)
        elif name in ("rel", "faith", "conc"):
            encoders[source] = encoders.get(source) or _relevance(settings, source)
            given[name] = encoders[source][name]
        else:
            given[name] = load_component(name, source)
    return given


def reward_scorer(
    settings: Settings,
    *,
    reward: str | None = None,
    given: Mapping[str, str] | None = None,
    dw: str | None = None,
    dw_config: Mapping[str, object] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scorer:
    """What a trainer is handed: the mix of a YAML file (or the default one) with its given parts, or the DW-GRPO scorer."""
    from medloop.knobs import build
    from medloop.reward.combine import MixConfig, build_mix

    if dw is not None or dw_config is not None:
        from medloop.reward.dynamic import DynamicConfig, load_dynamic

        weights = {"weights": dict(dw_config)} if dw_config is not None else {}
        return load_dynamic(build(DynamicConfig, file=Path(dw) if dw else None, pairs=(), flags=weights), settings)
    config = build(MixConfig, file=Path(reward) if reward else None, pairs=(), flags={})
    return build_mix(config, hand_in(settings, given or {}, progress=progress))


def _reward_model(settings: Settings, source: str) -> Component:
    from medloop.models import require_packages

    require_packages()
    from medloop.reward.model import load_reward_model

    if not source:
        raise ConfigError("The part 'model' needs the name of a reward model", "For example: --with model=models/reward/first")
    return load_reward_model(source, settings)


def _relevance(settings: Settings, source: str) -> Mapping[str, Component]:
    from medloop.knobs import build
    from medloop.reward.dynamic import DynamicConfig
    from medloop.reward.relevance import load_relevance

    config = build(DynamicConfig, file=Path(source) if source else None, pairs=(), flags={})
    return load_relevance(config.relevance, settings)


def teacher_key(settings: Settings) -> str:
    return settings.teacher_key.get_secret_value() or os.environ.get("DEEPSEEK_API_KEY", "")


def _teacher(settings: Settings, source: str, progress: Callable[[int, int], None] | None) -> Component:
    from medloop.knobs import build
    from medloop.teacher.config import TeacherConfig
    from medloop.teacher.judge import Files
    from medloop.teacher.part import TeacherPart

    config = build(TeacherConfig, file=Path(source) if source else None, pairs=(), flags={})
    return TeacherPart(config, key=teacher_key(settings), files=Files.of(settings.workspace), progress=progress)


def score_answers(
    settings: Settings,
    *,
    source: Path,
    output: Path,
    config: MixConfig,
    given: Given | None = None,
    keep: Store | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[FileSummary, int]:
    """A file of answers scored by the mix; what teacher and rules disagree on goes to the reviewer, counted.

    With `keep` the rewards also go into the store, where a second scoring of the same answers adds nothing.
    """
    from medloop.reward.combine import build_mix
    from medloop.reward.conflicts import write_conflicts
    from medloop.reward.file import score_file

    conflicts = 0

    def compare(samples: Sequence[Sample], rewards: Sequence[Reward]) -> None:
        nonlocal conflicts
        conflicts += write_conflicts(settings.workspace.rl / "teacher_conflicts.jsonl", samples, rewards, config)

    whole = config.normalise != "none"
    mix = build_mix(config, given)
    summary = score_file(source, output, mix, whole=whole, scored=compare, progress=progress)
    if keep is not None:
        _keep_scores(keep, output)
    return summary, conflicts


def _keep_scores(store: Store, scores: Path) -> None:
    """Missing parts may be had at another try, so only whole rewards are kept for good."""
    from itertools import islice

    from medloop.reward.file import Line, is_whole
    from medloop.store import jsonl, records

    lines = (line for line in jsonl.read(scores, Line) if is_whole(line))
    while some := list(islice(lines, records.PAGE)):
        records.add(store, [line.stored() for line in some], actor=actor())


def inspect_answers(
    settings: Settings, *, files: Sequence[Path], week: str, config: InspectConfig, output: Path | None = None
) -> tuple[Inspection, Pool]:
    """The answers a medical reviewer reads this week; what has no score on file is scored by the rules."""
    from medloop.data.language import detect_language
    from medloop.data.risk import strata_of
    from medloop.evaluate.inspect import inspect
    from medloop.evaluate.inspect_read import Tools, default_files, gather
    from medloop.reward.combine import MixConfig, build_mix
    from medloop.reward.file import sample_key, sample_of

    tools = Tools(sample_of, sample_key, build_mix(MixConfig()), strata_of, detect_language)
    workspace = settings.workspace
    pool = gather(files or default_files(workspace), workspace, tools)
    return inspect(pool, workspace, week=week, config=config, output=output), pool


def rl_audit(seed: int) -> Callable[[Sequence[tuple[Sample, Reward]], Sequence[tuple[Sample, Reward]]], list[str]]:
    """What a trainer is handed to see whether its reward is being hacked: the panel of the answers before and now, in words."""

    def audit(before: Sequence[tuple[Sample, Reward]], now: Sequence[tuple[Sample, Reward]]) -> list[str]:
        from medloop.evaluate.panel import PanelConfig, Round, Row, panel

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
    from medloop.contracts import Sample
    from medloop.evaluate.panel import panel
    from medloop.evaluate.panel_read import read_rounds
    from medloop.evaluate.probes import probe
    from medloop.reward.combine import build_mix
    from medloop.reward.file import read_samples, sample_key

    rounds = read_rounds(scores, held_out, answers, read_samples=read_samples, key_of=sample_key)
    last = [Sample(id=row.id, question=row.question, answer=row.answer) for row in rounds[-1].rows]
    return panel(rounds, probes=probe(build_mix(mix, given), last, seed=config.seed), config=config)


def build_from_feedback(
    store: Store, config: FeedbackConfig, *, seed: int, actor: str, progress: Steps | None = None
) -> Built:  # fmt: skip
    """Feedback as a dataset, entered in the catalog; the command and the address `/api/v1/data/build` both come here."""
    from medloop.data.from_feedback import build
    from medloop.data.progress import silent
    from medloop.store.catalog import register

    built = build(store, config, seed=seed, actor=actor, progress=progress or silent)
    register(store, "feedback", built.folder, built.card.model_dump(mode="json", exclude_none=True), actor=actor)
    return built


def fill_queue(
    settings: Settings, store: Store, *, config: QueueConfig, reward_model: str = "", answers: Path | None = None
) -> Proposed:
    """Top the review queue up from traces, from where teacher and rules disagreed, and from a file of answers."""
    from medloop.data.risk import strata_of
    from medloop.feedback.propose import Signals, answer_key, from_samples, propose
    from medloop.reward.file import read_samples
    from medloop.store import jsonl, marks
    from medloop.store.scores import rewards_of

    path = settings.workspace.rl / "teacher_conflicts.jsonl"
    rows = list(jsonl.read(path))[-config.pool :] if path.is_file() else []
    gaps = {answer_key(row["question"], row["answer"]): float(row["gap"]) for row in rows}
    extra = from_samples(((row["question"], row["answer"], None, float(row["gap"])) for row in rows), pairs=False)
    if answers is not None:
        given = ((one.question, one.answer, one.group, None) for one in read_samples(answers) if one.answer)
        extra += from_samples(given, pairs=True)
    values = _values(settings, reward_model) if reward_model else None
    signals = Signals(strata_of, values, gaps, rewards_of(store, marks.newest_traces(store, config.pool)))
    return propose(store, signals, extra=extra, config=config, actor=actor())


def _values(settings: Settings, name: str) -> Callable[[Sequence[Sample]], list[float | None]]:
    """What a reward model says of answers; None where it could not."""
    from medloop.contracts import Score

    model = _reward_model(settings, name)
    return lambda samples: [part.value if isinstance(part, Score) else None for part in model.score(samples)]


def measure_feedback(settings: Settings, store: Store, config: MetricsConfig) -> FeedbackMetrics:
    """The numbers about the feedback, with the coverage of the risk strata."""
    from medloop.data.risk import strata_of
    from medloop.feedback.metrics import measure

    return measure(store, config, strata_of=strata_of if config.traces else None, actor=actor())


def erase_records(store: Store, request: Request, *, actor: str, jobs: Jobs | None = None) -> Proof:
    """Erasure, with what the data stage knows about its cards; training jobs on the data are known through `jobs`."""
    from medloop.data.feedback_card import after_erasure
    from medloop.privacy.erase import erase

    return erase(store, request, actor=actor, recard=after_erasure, jobs=jobs)
