"""`medloop data prompts`: the questions a policy is asked during RL, at least 40 % of them high-risk.

They come only from the train set. The gold and red-team sets stay unseen, because a policy that was rewarded on them could no
longer be measured with them; the high-risk rows of train are the same kind of question.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medloop.contracts import Prompt, Record, canonical_json, sha256_id
from medloop.contracts.dataset import HIGH_RISK, SPLIT_FILES
from medloop.data.prepare.collect import priority
from medloop.data.prepare.prepare import read_card
from medloop.data.prepare.split import Cell, allocate
from medloop.data.text.risk import is_red_team
from medloop.errors import ConfigError, InputError
from medloop.settings import Workspace
from medloop.store.files.artifacts import atomic_write, file_sha256, verify_artifact
from medloop.store.files.jsonl import read, write

PROMPTS, PROMPTS_CARD = "training_prompts.jsonl", "training_prompts.card.json"


@dataclass(frozen=True)
class PromptCandidate:
    """A train row in the draw; `line` is its line in train.jsonl."""

    line: int
    cell: Cell
    priority: int


def make_prompts(workspace: Workspace, *, count: int, high_risk: float, seed: int) -> dict[str, Any]:
    """Write `data/rl/training_prompts.jsonl` and its card; returns the card."""
    if count < 1 or not 0 <= high_risk <= 1:
        raise ConfigError(
            f"{count} prompts with a high-risk share of {high_risk:g} cannot be drawn", "Use --n 1 or more, --high-risk 0 to 1"
        )
    dataset = read_card(workspace).content_id()
    verify_artifact(workspace.processed)
    train = workspace.processed / SPLIT_FILES["train"]
    risky, routine = _candidates(train, seed)
    high_risk_count = max(math.ceil(count * high_risk), count - len(routine))
    if len(risky) < high_risk_count:
        few, total = math.ceil(count * high_risk), len(risky) + len(routine)
        need = (
            f"{count} prompts with a high-risk share of {high_risk:g} need {few} high-risk questions, but train has {len(risky)}"
        )
        raise InputError(
            f"{count} prompts need as many questions, but train has {total} ({len(risky)} high-risk)" if count > total else need,
            f"Use {' or '.join(_possible_draws(count, high_risk, len(risky), len(routine)))}, or import and prepare more data",
        )
    chosen = sorted([*draw(risky, high_risk_count), *draw(routine, count - high_risk_count)], key=_by_priority)
    path = workspace.rl / PROMPTS
    lines = {candidate.line: position for position, candidate in enumerate(chosen)}
    prompts = sorted(_prompts(train, lines), key=lambda numbered: numbered[0])
    write(path, (prompt for _, prompt in prompts))
    card = _card([prompt for _, prompt in prompts], path, dataset, seed)
    atomic_write(workspace.rl / PROMPTS_CARD, canonical_json(card) + "\n")
    return card


def _possible_draws(count: int, high_risk: float, risky: int, routine: int) -> list[str]:
    """The options that this train set has enough for: with the share that was asked for, and with the most prompts."""
    with_share = next((n for n in range(count, 0, -1) if max(math.ceil(n * high_risk), n - routine) <= risky), 0)
    most = min(count, risky + routine)
    options = [f"--n {with_share}"] if with_share else []
    return [*options, f"--n {most} --high-risk {math.floor(100 * risky / max(most, 1)) / 100:g}"]


def draw(pool: Sequence[PromptCandidate], total: int) -> list[PromptCandidate]:
    """Languages in proportion, strata by the square root of their size, the first by priority in each."""
    cells = Counter(candidate.cell for candidate in pool)
    tongues = Counter(candidate.cell[0] for candidate in pool)
    chosen: list[PromptCandidate] = []
    for tongue, seats in allocate(total, {k: float(v) for k, v in tongues.items()}, tongues).items():
        weights = {cell: math.sqrt(number) for cell, number in cells.items() if cell[0] == tongue}
        for cell, places in allocate(seats, weights, cells).items():
            chosen += sorted((candidate for candidate in pool if candidate.cell == cell), key=_by_priority)[:places]
    return chosen


def _by_priority(candidate: PromptCandidate) -> tuple[int, int]:
    return candidate.priority, candidate.line


def _candidates(train: Path, seed: int) -> tuple[list[PromptCandidate], list[PromptCandidate]]:
    """High-risk and routine rows of train, each prompt once."""
    seen: set[int] = set()
    risky: list[PromptCandidate] = []
    routine: list[PromptCandidate] = []
    for line, record in enumerate(read(train, Record)):
        key = int(_prompt_id(record)[7:23], 16)
        if key not in seen:
            seen.add(key)
            pool = risky if record.stratum in HIGH_RISK else routine
            pool.append(PromptCandidate(line, (record.language, record.stratum), priority(seed, key)))
    return risky, routine


def _prompts(train: Path, lines: dict[int, int]) -> Iterator[tuple[int, Prompt]]:
    for line, record in enumerate(read(train, Record)):
        if line in lines:
            yield (
                lines[line],
                Prompt(
                    prompt_id=_prompt_id(record), messages=record.conversation.prompt, language=record.language,
                    strata=record.strata, red_team=is_red_team(record.strata), context=record.context,
                    origin=record.origin,
                ),
            )  # fmt: skip


def _prompt_id(record: Record) -> str:
    return sha256_id(canonical_json([message.model_dump() for message in record.conversation.prompt]))


def _card(prompts: Sequence[Prompt], path: Path, dataset: str, seed: int) -> dict[str, Any]:
    risky = sum(prompt.strata[0] in HIGH_RISK for prompt in prompts)
    return {
        "file": {"path": path.name, "rows": len(prompts), "sha256": file_sha256(path)}, "seed": seed, "dataset": dataset,
        "high_risk": risky, "high_risk_share": round(risky / len(prompts), 4),
        "red_team": sum(prompt.red_team for prompt in prompts),
        "with_context": sum(prompt.context is not None for prompt in prompts),
        "languages": dict(sorted(Counter(prompt.language for prompt in prompts).items())),
        "strata": dict(sorted(Counter(prompt.strata[0] for prompt in prompts).items())),
    }  # fmt: skip
