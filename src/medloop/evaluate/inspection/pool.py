"""The answers to inspect, joined with their scores, the teacher's judgements and the conflicts between the two.

Functions of other stages come in as `PoolTools`: this file knows the shapes of the files, not who wrote them. A score belongs
to an answer when its key is the hash of that very answer, so the score of an older text is never shown beside a newer one.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from medloop.contracts import Judgement, Reward, Sample, Score, Scorer, canonical_json, sha256_id
from medloop.contracts.dataset import SPLIT_FILES, Language, Stratum
from medloop.errors import ConfigError, InputError
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.settings import Workspace
from medloop.store.files import jsonl
from medloop.store.files.answer_lines import Questions, read_samples

JUDGEMENTS, CONFLICTS = "teacher_judgements.jsonl", "teacher_conflicts.jsonl"
SCORES_END = "_scores.jsonl"
AT_ONCE = 512


@dataclass(frozen=True)
class PoolTools:
    """What the other stages lend: a scorer, the risk strata of a question, and its language."""

    scorer: Scorer
    strata_of: Callable[[str], tuple[Stratum, ...]]
    language_of: Callable[[str], Language]


@dataclass(frozen=True)
class PoolAnswer:
    """One answer with everything known about it; texts are scrubbed."""

    sample: Sample
    source: str
    reward: Reward
    strata: tuple[Stratum, ...]
    language: Language
    judgement: Judgement | None = None
    conflict: bool = False

    @cached_property
    def key(self) -> str:
        return text_key(self.sample.question, self.sample.answer)


@dataclass
class AnswerPool:
    """All answers, each text once; and how many were scored now, left out, or had a score but no answer."""

    answers: list[PoolAnswer] = field(default_factory=list)
    scored_now: int = 0
    unscrubbable: int = 0
    scores_without_answer: int = 0


def text_key(question: str, answer: str | None) -> str:
    return sha256_id(canonical_json([question, answer]))


def default_files(workspace: Workspace) -> list[Path]:
    """Scored answers of the workspace, and the predictions of its evaluations."""
    scores = [*workspace.home.glob(f"*{SCORES_END}"), *workspace.rl.glob(f"*{SCORES_END}")]
    files = sorted({*_beside(scores), *workspace.reports.rglob("*predictions_*.jsonl")})
    if not files:
        raise ConfigError("This workspace has no scored answers", "Name a file of answers: medloop inspect answers.jsonl")
    return files


def answers_of(scores: Path) -> Path:
    """`answers.jsonl` for `answers_scores.jsonl`."""
    return scores.with_name(scores.name.removesuffix(SCORES_END) + ".jsonl")


def gather(files: Sequence[Path], workspace: Workspace, tools: PoolTools, questions: Sequence[Path] = ()) -> AnswerPool:
    """Answers and scores files in any order; `NAME_scores.jsonl` and the `NAME.jsonl` beside it are joined.

    An answer without a question takes it, by id, from `questions` or from the workspace's data.
    """
    scores_files = [path for path in files if is_scores(path)]
    answer_files = list(dict.fromkeys([*(path for path in files if path not in scores_files), *_beside(scores_files)]))
    if not answer_files:
        raise ConfigError(f"The answers of {scores_files[0]} are not beside it", "Name the file of answers as well")
    beside = [path.with_name(f"{path.stem}{SCORES_END}") for path in answer_files]
    scores = _scores(dict.fromkeys([*scores_files, *(path for path in beside if path.is_file())]))
    records = [path for name in SPLIT_FILES.values() if (path := workspace.processed / name).is_file()]
    known = Questions([*records, *questions])
    samples = [(path, sample) for path in answer_files for sample in read_samples(path, known, unique=False)]
    pool, used = AnswerPool(), set[str]()
    rewards = _rewards([sample for _, sample in samples], scores, tools.scorer, pool, used)
    pool.scores_without_answer = len(scores.keys() - used)
    scored = [(path, sample, reward) for (path, sample), reward in zip(samples, rewards, strict=True)]
    _fill(pool, scored, workspace, tools)
    return pool


def _beside(scores: Iterable[Path]) -> list[Path]:
    return [path for name in scores if name.name.endswith(SCORES_END) and (path := answers_of(name)).is_file()]


def is_scores(path: Path) -> bool:
    return any("reward" in row for row in islice(jsonl.read(path), 1))


def _scores(paths: Iterable[Path]) -> dict[str, Reward]:
    scores: dict[str, Reward] = {}
    for path in paths:
        for number, row in jsonl.numbered(path):
            try:
                scores[str(row["key"])] = Reward.model_validate(row["reward"])
            except (KeyError, ValidationError):
                raise InputError.at(path, number, "no reward with a key", "Make the file with: medloop reward score") from None
    return scores


def _rewards(
    samples: Sequence[Sample], scores: Mapping[str, Reward], scorer: Scorer, pool: AnswerPool, used: set[str]
) -> list[Reward]:
    """The reward of each answer: the newest of its scores on file, else scored now."""
    versions = list(dict.fromkeys(reward.version for reward in reversed(list(scores.values()))))
    rewards: dict[int, Reward] = {}
    for index, sample in enumerate(samples):
        keys = [key for version in versions if (key := sample.score_key(version)) in scores]
        used.update(keys)
        if keys:
            rewards[index] = scores[keys[0]]
    missing = [index for index in range(len(samples)) if index not in rewards]
    for start in range(0, len(missing), AT_ONCE):
        part = missing[start : start + AT_ONCE]
        rewards.update(zip(part, scorer.score([samples[index] for index in part]), strict=True))
    pool.scored_now = len(missing)
    return [rewards[index] for index in range(len(samples))]


def _fill(pool: AnswerPool, scored: Sequence[tuple[Path, Sample, Reward]], workspace: Workspace, tools: PoolTools) -> None:
    """Scrub, look up judgement and conflict, keep each text once. What cannot be scrubbed is left out, and counted."""
    judgements, by_critique = _judgements(workspace.rl / JUDGEMENTS)
    conflicts = _conflicts(workspace.rl / CONFLICTS)
    answers_of_id = Counter(name for name, _ in {(sample.id, sample.answer) for _, sample, _ in scored})
    keys: set[str] = set()
    for path, sample, reward in scored:
        scrubber = Scrubber()
        try:
            question = scrubber.release(sample.question)
            text = None if sample.answer is None else scrubber.release(sample.answer)
        except Unscrubbable:
            pool.unscrubbable += 1
            continue
        clean = sample.model_copy(update={"question": question, "answer": text})
        answer = PoolAnswer(clean, _label(path, workspace), reward, tools.strata_of(question), tools.language_of(question))
        if answer.key not in keys:
            keys.add(answer.key)
            judgement = _judgement_of(clean, reward, judgements.get(sample.id, ()), single=answers_of_id[sample.id] == 1)
            judgement = judgement or _judged_elsewhere(clean, reward, by_critique)
            conflict = text_key(sample.question, sample.answer) in conflicts
            pool.answers.append(replace(answer, judgement=judgement, conflict=conflict))


def _label(path: Path, workspace: Workspace) -> str:
    absolute = path.absolute()
    return absolute.relative_to(workspace.home).as_posix() if absolute.is_relative_to(workspace.home) else path.name


def _judgements(path: Path) -> tuple[dict[str, list[Judgement]], dict[tuple[float, str], list[Judgement]]]:
    """Judgements by id, and by score and critique."""
    by_id: dict[str, list[Judgement]] = {}
    by_critique: dict[tuple[float, str], list[Judgement]] = {}
    for judgement in jsonl.read(path, Judgement) if path.is_file() else ():
        by_id.setdefault(judgement.prompt_id, []).append(judgement)
        by_critique.setdefault((judgement.teacher_score, judgement.critique), []).append(judgement)
    return by_id, by_critique


def _conflicts(path: Path) -> set[str]:
    rows = jsonl.read(path) if path.is_file() else iter(())
    return {text_key(str(row.get("question")), row.get("answer")) for row in rows}


def _judgement_of(sample: Sample, reward: Reward, judgements: Sequence[Judgement], *, single: bool) -> Judgement | None:
    """The newest judgement of this answer. Several models may answer the prompt of one id, so the id alone is not enough:

    the score in the reward, or words quoted from the answer, must agree; only a single answer to the id needs neither.
    """
    teacher = _teacher_score(reward)
    for judgement in reversed(judgements):
        if teacher is not None:
            fits = abs(teacher.value - judgement.teacher_score) < 1e-9 and teacher.reason in (judgement.critique, "no critique")
        else:
            quoted = _is_quoted(sample, judgement)
            fits = single if quoted is None else quoted
        if fits:
            return judgement
    return None


def _judged_elsewhere(
    sample: Sample, reward: Reward, by_critique: Mapping[tuple[float, str], Sequence[Judgement]]
) -> Judgement | None:
    """A text judged under another id is not judged again; its judgement is recognised by score, critique and quotations."""
    teacher = _teacher_score(reward)
    judgements = by_critique.get((teacher.value, teacher.reason), ()) if teacher else ()
    return next((judgement for judgement in reversed(judgements) if _is_quoted(sample, judgement)), None)


def _teacher_score(reward: Reward) -> Score | None:
    return next((part for part in reward.parts if part.name == "teacher" and isinstance(part, Score)), None)


def _is_quoted(sample: Sample, judgement: Judgement) -> bool | None:
    """Whether all quoted evidence is in the answer; None when nothing was quoted."""
    quotes = [_letters(text) for text in judgement.evidence.values() if _letters(text)]
    return all(quote in _letters(sample.answer or "") for quote in quotes) if quotes else None


def _letters(text: str) -> str:
    return re.sub(r"\W+", "", text).casefold()
