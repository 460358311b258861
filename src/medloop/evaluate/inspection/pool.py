"""What there is to inspect: answers joined with their scores, the teacher's judgements and the conflicts between the two.

Other stages' functions come in as `Tools`: this file knows the shapes of the files, not who wrote them. A score belongs to an
answer when its key is the hash of that very answer, so scores of an older text are never shown beside a newer one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from medloop.contracts import Judgement, Record, Reward, Sample, Score, Scorer, canonical_json, sha256_id
from medloop.contracts.dataset import SPLIT_FILES, Language, Stratum
from medloop.errors import ConfigError, InputError
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.settings import Workspace
from medloop.store.files import jsonl

JUDGEMENTS, CONFLICTS = "teacher_judgements.jsonl", "teacher_conflicts.jsonl"
SCORES_END = "_scores.jsonl"
AT_ONCE = 512


@dataclass(frozen=True)
class Tools:
    """What the other stages lend: how a line becomes a sample, which key its score has, who scores, what is at stake."""

    sample_of: Callable[[dict[str, Any], str], Sample]
    key_of: Callable[[Sample, str], str]
    scorer: Scorer
    strata_of: Callable[[str], tuple[Stratum, ...]]
    language_of: Callable[[str], Language]


@dataclass(frozen=True)
class Seen:
    """One answer with all that is known of it; texts are scrubbed."""

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
class Pool:
    """All answers, each text once; and what did not find its place."""

    seen: list[Seen] = field(default_factory=list)
    scored_now: int = 0
    unscrubbable: int = 0
    scores_without_answer: int = 0


def text_key(question: str, answer: str | None) -> str:
    return sha256_id(canonical_json([question, answer]))


def default_files(workspace: Workspace) -> list[Path]:
    """Scored answers of the workspace, and what evaluations have kept."""
    scores = [*workspace.home.glob(f"*{SCORES_END}"), *workspace.rl.glob(f"*{SCORES_END}")]
    found = sorted({*_beside(scores), *workspace.reports.rglob("*predictions_*.jsonl")})
    if not found:
        raise ConfigError(
            "There are no scored answers in this workspace", "Name a file of answers: medloop inspect answers.jsonl"
        )
    return found


def answers_of(scores: Path) -> Path:
    """`answers_scores.jsonl` lies beside `answers.jsonl`."""
    return scores.with_name(scores.name.removesuffix(SCORES_END) + ".jsonl")


def gather(files: Sequence[Path], workspace: Workspace, tools: Tools) -> Pool:
    """Answers and scores files in any order; `NAME_scores.jsonl` and `NAME.jsonl` beside it find each other."""
    named = [path for path in files if is_scores(path)]
    answers = list(dict.fromkeys([*(path for path in files if path not in named), *_beside(named)]))
    if not answers:
        raise ConfigError(f"The answers of {named[0]} do not lie beside it", "Name the file of answers as well")
    beside = [path.with_name(f"{path.stem}{SCORES_END}") for path in answers]
    scores = _scores(dict.fromkeys([*named, *(path for path in beside if path.is_file())]))
    pool, used = Pool(), set[str]()
    raw = [(path, sample) for path in answers for sample in _samples(path, workspace, tools)]
    rewards = _rewards([sample for _, sample in raw], scores, tools, pool, used)
    pool.scores_without_answer = len(scores.keys() - used)
    asked = [(path, sample, reward) for (path, sample), reward in zip(raw, rewards, strict=True)]
    _fill(pool, asked, workspace, tools)
    return pool


def _beside(scores: Iterable[Path]) -> list[Path]:
    return [found for path in scores if path.name.endswith(SCORES_END) and (found := answers_of(path)).is_file()]


def is_scores(path: Path) -> bool:
    return any("reward" in row for row in islice(jsonl.read(path), 1))


def _scores(paths: Iterable[Path]) -> dict[str, Reward]:
    found: dict[str, Reward] = {}
    for path in paths:
        for number, row in jsonl.numbered(path):
            try:
                found[str(row["key"])] = Reward.model_validate(row["reward"])
            except (KeyError, ValidationError):
                raise InputError.at(path, number, "no reward with a key", "Make the file with: medloop reward score") from None
    return found


def _samples(path: Path, workspace: Workspace, tools: Tools) -> Iterator[Sample]:
    """Answers of a file; what has a record_id and no question of its own takes the record's."""
    known: dict[str, str] | None = None
    for number, row in jsonl.numbered(path):
        if "record_id" in row and not row.keys() & {"question", "prompt", "messages", "conversation"}:
            known = _questions(workspace) if known is None else known
            if row["record_id"] in known:
                row = {**row, "question": known[row["record_id"]]}
        try:
            yield tools.sample_of(row, str(number))
        except ValueError as problem:
            hint = 'Lines look like {"id": ..., "question": ..., "answer": ...}; predictions need their records in data/processed'
            raise InputError.at(path, number, str(problem), hint) from None


def _questions(workspace: Workspace) -> dict[str, str]:
    files = [path for name in SPLIT_FILES.values() if (path := workspace.processed / name).is_file()]
    return {record.record_id: record.conversation.asked for path in files for record in jsonl.read(path, Record)}


def _rewards(samples: Sequence[Sample], scores: Mapping[str, Reward], tools: Tools, pool: Pool, used: set[str]) -> list[Reward]:
    """The reward of each answer: the newest of its scores on file, else scored now."""
    versions = list(dict.fromkeys(reward.version for reward in reversed(list(scores.values()))))
    found: list[Reward | None] = []
    for sample in samples:
        keys = [key for version in versions if (key := tools.key_of(sample, version)) in scores]
        used.update(keys)
        found.append(scores[keys[0]] if keys else None)
    open_ = [at for at, reward in enumerate(found) if reward is None]
    for start in range(0, len(open_), AT_ONCE):
        part = open_[start : start + AT_ONCE]
        for at, reward in zip(part, tools.scorer.score([samples[at] for at in part]), strict=True):
            found[at] = reward
    pool.scored_now = len(open_)
    return [reward for reward in found if reward is not None]


def _fill(pool: Pool, asked: Sequence[tuple[Path, Sample, Reward]], workspace: Workspace, tools: Tools) -> None:
    """Scrub, look up judgement and conflict, keep each text once. What cannot be scrubbed is left out, and counted."""
    judged, by_words = _judgements(workspace.rl / JUDGEMENTS)
    conflicts = _conflicts(workspace.rl / CONFLICTS)
    distinct = {(sample.id, sample.answer) for _, sample, _ in asked}
    answers = Counter(name for name, _ in distinct)
    taken: set[str] = set()
    for path, sample, reward in asked:
        scrubber = Scrubber()
        try:
            question = scrubber.scrub(sample.question)
            answer = None if sample.answer is None else scrubber.scrub(sample.answer)
        except Unscrubbable:
            pool.unscrubbable += 1
            continue
        clean = sample.model_copy(update={"question": question, "answer": answer})
        seen = Seen(clean, _label(path, workspace), reward, tools.strata_of(question), tools.language_of(question))
        if seen.key not in taken:
            taken.add(seen.key)
            judgement = _judgement_of(clean, reward, judged.get(sample.id, ()), alone=answers[sample.id] == 1)
            judgement = judgement or _elsewhere(clean, reward, by_words)
            clash = text_key(sample.question, sample.answer) in conflicts
            pool.seen.append(replace(seen, judgement=judgement, conflict=clash))


def _label(path: Path, workspace: Workspace) -> str:
    whole = path.absolute()
    return whole.relative_to(workspace.home).as_posix() if whole.is_relative_to(workspace.home) else path.name


def _judgements(path: Path) -> tuple[dict[str, list[Judgement]], dict[tuple[float, str], list[Judgement]]]:
    """Judgements by id, and by score and critique."""
    found: dict[str, list[Judgement]] = {}
    by_words: dict[tuple[float, str], list[Judgement]] = {}
    for judgement in jsonl.read(path, Judgement) if path.is_file() else ():
        found.setdefault(judgement.prompt_id, []).append(judgement)
        by_words.setdefault((judgement.teacher_score, judgement.critique), []).append(judgement)
    return found, by_words


def _conflicts(path: Path) -> set[str]:
    rows = jsonl.read(path) if path.is_file() else iter(())
    return {text_key(str(row.get("question")), row.get("answer")) for row in rows}


def _judgement_of(sample: Sample, reward: Reward, found: Sequence[Judgement], *, alone: bool) -> Judgement | None:
    """The newest judgement of this answer. Several models may answer the prompt of one id, so the id alone is not enough:

    the score in the reward, or words quoted from the answer, must agree; only a single answer to the id needs neither.
    """
    teacher = _teacher_part(reward)
    for judgement in reversed(found):
        if teacher is not None:
            fits = abs(teacher.value - judgement.teacher_score) < 1e-9 and teacher.reason in (judgement.critique, "no critique")
        else:
            quoted = _quotes(sample, judgement)
            fits = alone if quoted is None else quoted
        if fits:
            return judgement
    return None


def _elsewhere(sample: Sample, reward: Reward, by_words: Mapping[tuple[float, str], Sequence[Judgement]]) -> Judgement | None:
    """A text judged before under another id is not judged again; its judgement is found by score, critique and quotations."""
    teacher = _teacher_part(reward)
    found = by_words.get((teacher.value, teacher.reason), ()) if teacher else ()
    return next((judgement for judgement in reversed(found) if _quotes(sample, judgement)), None)


def _teacher_part(reward: Reward) -> Score | None:
    return next((part for part in reward.parts if part.name == "teacher" and isinstance(part, Score)), None)


def _quotes(sample: Sample, judgement: Judgement) -> bool | None:
    """Does all that was quoted stand in the answer? None when nothing was quoted."""
    quotes = [_flat(text) for text in judgement.evidence.values() if _flat(text)]
    return all(quote in _flat(sample.answer or "") for quote in quotes) if quotes else None


def _flat(text: str) -> str:
    return re.sub(r"\W+", "", text).casefold()
