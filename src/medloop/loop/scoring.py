"""The reward, composed: a mix of rules and given parts (teacher, reward model, relevance), or the DW-GRPO scorer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from medloop.contracts import Component, Missing, Reward, Sample, Score
from medloop.contracts.validity import JudgeSource
from medloop.errors import ConfigError
from medloop.knobs import load_config
from medloop.loop.rubrics import criteria_part
from medloop.models import require_packages
from medloop.models.find import check_reward_model, find_reward_model
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.reward.conflicts import write_conflicts
from medloop.reward.criteria import NAME as CRITERIA
from medloop.reward.dynamic import DynamicConfig, DynamicScorer, load_dynamic
from medloop.reward.mix import GivenParts, MixConfig, MixPart, RewardMix, build_mix, load_component
from medloop.reward.relevance import load_relevance
from medloop.reward.rulebook import rulebook
from medloop.reward.score_file import FileSummary, ScoreLine, is_whole, score_file
from medloop.settings import Settings
from medloop.store.audit_trail import actor
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import Questions
from medloop.store.records import crud
from medloop.store.records.chunks import chunks
from medloop.teacher.component import TeacherPart
from medloop.teacher.config import TeacherConfig
from medloop.teacher.judge import TeacherFiles
from medloop.teacher.rules_page import rules_page
from medloop.teacher.verdict import RUBRIC_PARTS

Progress = Callable[[int, int], None]  # done, total
OnScored = Callable[[Sequence[Sample], Sequence[Reward]], None]
CONFLICTS = "teacher_conflicts.jsonl"
CRITERIA_WEIGHT = 0.2  # in the default mix, where the part is given


@dataclass(frozen=True)
class UnloadedModel:
    """A reward model that is only named: part of an objective before the run."""

    source: str
    name: str = "model"
    penalty: bool = False

    @property
    def version(self) -> str:
        return self.source or "unnamed"

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        raise AssertionError("an unloaded model is never asked for a score")


def given_parts(
    settings: Settings, sources: Mapping[str, str], *, progress: Progress | None = None, load_models: bool = True
) -> GivenParts:
    """The given parts of a reward by name, each from its source; models are loaded when they first score.

    `teacher` takes a YAML file like configs/teacher.yaml (empty: the DeepSeek preset), `model` a reward model, `rel`, `faith` and
    `conc` a YAML file like configs/dw.yaml (empty: the embedded encoder), `criteria` nothing: they are in the store. Any other
    name takes your own `module:object`.
    """
    given: dict[str, Component] = {}
    relevance: dict[str, Mapping[str, Component]] = {}  # rel and faith of one file share their models
    for name, source in sources.items():
        if name == "teacher":
            given[name] = _teacher_part(settings, source, progress)
        elif name == "model":
            given[name] = load_reward_model_part(settings, source) if load_models else UnloadedModel(source)
        elif name in ("rel", "faith", "conc"):
            if source not in relevance:
                config = load_config(DynamicConfig, file=Path(source) if source else None, pairs=(), flags={})
                relevance[source] = load_relevance(config.relevance, settings)
            given[name] = relevance[source][name]
        elif name == CRITERIA and not source:
            given[name] = criteria_part(settings)
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
    progress: Progress | None = None,
    load_models: bool = True,
) -> RewardMix | DynamicScorer:
    """The scorer for a trainer: the mix of a YAML file (or the default one) with its given parts, or the DW-GRPO scorer.

    `dw` or `dw_config` select the DW-GRPO scorer. Both rewards have the safety rules by default; the default mix gains the part
    `criteria` where it is given.
    """
    if dw is not None or dw_config is not None:
        if reward is not None or given:
            raise ConfigError(
                "A run has one reward, but two are named: dynamic weights (dw, dw_config) and a mix (reward, given)",
                "Leave one of them out",
            )
        weights = {"weights": dict(dw_config)} if dw_config is not None else {}
        return load_dynamic(load_config(DynamicConfig, file=Path(dw) if dw else None, pairs=(), flags=weights), settings)
    config = load_config(MixConfig, file=Path(reward) if reward else None, pairs=(), flags={})
    if reward is None and CRITERIA in (given or {}):
        config = config.model_copy(update={"parts": {**config.parts, CRITERIA: MixPart(weight=CRITERIA_WEIGHT, given=True)}})
    return build_mix(config, given_parts(settings, given or {}, progress=progress, load_models=load_models))


def judge_of(
    settings: Settings, source: JudgeSource, *, budget: float | None = None
) -> tuple[str, RewardMix | DynamicScorer]:  # fmt: skip
    """What `medloop reward validate` measures, and its kind: a mix, dynamic weights, a teacher alone or a reward model alone.

    `budget` is the most that a teacher may spend, in USD; with 0 only its cache answers.
    """
    found = _each_path(source, lambda name: str(settings.find(name)) if name and settings.find(name).exists() else name)
    reward, given, dw, teacher, reward_model = found.config, found.given, found.dw, found.teacher, found.reward_model
    named = {"dw": dw, "teacher": teacher, "reward_model": reward_model, "mix": reward or given or None}
    kinds = [kind for kind, source in named.items() if source is not None]
    if len(kinds) > 1:
        options = {"dw": "--dw", "teacher": "--teacher", "reward_model": "--reward-model", "mix": "--config or --with"}
        raise ConfigError(f"Several judges are named: {', '.join(options[kind] for kind in kinds)}", "Measure one at a time")
    if teacher is not None:
        parts = {f"teacher.{name}": MixPart(weight=0, given=True) for name in RUBRIC_PARTS}
        part = _with_budget(_teacher_part(settings, teacher, None), budget)
        if getattr(part, "compares", False):
            parts = {name: MixPart(weight=0, given=True) for name in ("teacher.risk",)}
        config = MixConfig(version="teacher", parts={"teacher": MixPart(weight=1, given=True), **parts})
        return "teacher", build_mix(config, {"teacher": part})
    if reward_model is not None:
        config = MixConfig(version="model", parts={"model": MixPart(weight=1, given=True)})
        return "reward model", build_mix(config, {"model": load_reward_model_part(settings, reward_model)})
    scorer = reward_scorer(settings, reward=reward, given=given, dw=dw)
    for part in getattr(scorer, "given", {}).values():
        _with_budget(part, budget)
    return "dynamic weights" if dw is not None else "mix", scorer


def kept_source(settings: Settings, source: JudgeSource) -> JudgeSource:
    """The source as a card keeps it: files with their full path, or relative to the workspace if they lie in it."""

    def kept(name: str) -> str:
        path = Path(name).expanduser().resolve()
        if not name or not path.exists():
            return name
        return path.relative_to(settings.home).as_posix() if path.is_relative_to(settings.home) else str(path)

    return _each_path(source, kept)


def _each_path(source: JudgeSource, change: Callable[[str], str]) -> JudgeSource:
    named = source.model_dump(exclude={"given"}, exclude_none=True)
    given = {part: change(name) for part, name in source.given.items()}
    return JudgeSource(**{option: change(name) for option, name in named.items()}, given=given)


def _with_budget(part: Component, budget: float | None) -> Component:
    if isinstance(part, TeacherPart) and budget is not None:
        part.config = part.config.model_copy(update={"budget_usd": budget})
    return part


def teachers_of(scorer: RewardMix | DynamicScorer) -> list[TeacherPart]:
    """The teachers that a reward asks, also for single entries of their verdicts."""
    parts = getattr(scorer, "given", {}).values()
    owners = [getattr(part, "teacher", part) for part in parts]
    return list({id(owner): owner for owner in owners if isinstance(owner, TeacherPart)}.values())


def load_reward_model_part(settings: Settings, source: str) -> Component:
    require_packages()
    if not source:
        raise ConfigError("The part 'model' needs the name of a reward model", "For example: --with model=models/reward/first")
    check_reward_model(find_reward_model(source, settings))
    from medloop.reward.model import load_reward_model  # torch, so after what may be wrong with the folder

    return load_reward_model(source, settings)


def _teacher_part(settings: Settings, source: str, progress: Progress | None) -> Component:
    config = load_config(TeacherConfig, file=Path(source) if source else None, pairs=(), flags={})
    key, files = settings.teacher.key.get_secret_value(), TeacherFiles.of(settings.workspace)
    return TeacherPart(config, key=key, files=files, progress=progress)


def score_answers(
    settings: Settings,
    *,
    source: Path,
    questions: Sequence[Path] = (),
    output: Path,
    config: MixConfig,
    given: GivenParts | None = None,
    store: Store | None = None,
    progress: Progress = lambda done, total: None,
) -> tuple[FileSummary, int]:
    """Score a file of answers by the mix; what teacher and rules disagree on goes to the reviewer, counted.

    With `store` the rewards are also stored; a second scoring of the same answers adds nothing.
    """
    conflicts, is_compared = 0, _compares(given or {})

    def compare(samples: Sequence[Sample], rewards: Sequence[Reward]) -> None:
        nonlocal conflicts
        conflicts += write_conflicts(settings.workspace.rl / CONFLICTS, samples, rewards, config, relative=is_compared)

    summary = score_file(
        source, output, build_mix(config, given), questions=Questions(questions),
        whole=config.normalise != "none" or is_compared, on_scored=compare, progress=progress,
    )  # fmt: skip
    if store is not None:
        _store_scores(store, output)
    return summary, conflicts


def rules_text(mix: RewardMix, given: GivenParts) -> str:
    """`reward_rules.md`: the parts of the reward, and the teacher's modes, rubric and templates where it is one of them."""
    if not any(name.partition(".")[0] == "teacher" for name in mix.config.parts):
        return rulebook(mix)
    teacher = given.get("teacher")
    return rulebook(mix) + "\n" + rules_page(teacher.config if isinstance(teacher, TeacherPart) else TeacherConfig())


def conflict_writer(settings: Settings, mix: RewardMix) -> OnScored:
    """For a trainer: what teacher and rules disagree on goes to the reviewer, without identifiers."""

    def write(samples: Sequence[Sample], rewards: Sequence[Reward]) -> None:
        clean = [(sample, reward) for answer, reward in zip(samples, rewards, strict=True) if (sample := _scrubbed(answer))]
        write_conflicts(
            settings.workspace.rl / CONFLICTS, [sample for sample, _ in clean], [reward for _, reward in clean], mix.config,
            relative=_compares(mix.given),
        )  # fmt: skip

    return write


def _compares(given: GivenParts) -> bool:
    """Whether a part scores an answer by its rank among the answers to the same question."""
    return any(getattr(part, "compares", False) for part in given.values())


def _scrubbed(sample: Sample) -> Sample | None:
    """Without identifiers; None where they cannot be removed, or where there is no answer."""
    scrubber = Scrubber()
    try:
        if sample.answer is None:
            return None
        return sample.model_copy(
            update={"question": scrubber.release(sample.question), "answer": scrubber.release(sample.answer)}
        )
    except Unscrubbable:
        return None


def _store_scores(store: Store, scores: Path) -> None:
    """Another try may bring a missing part, so only whole rewards are stored."""
    lines = (line for line in jsonl.read(scores, ScoreLine) if is_whole(line))
    for chunk in chunks(lines):
        crud.add(store, [line.stored() for line in chunk], actor=actor())
