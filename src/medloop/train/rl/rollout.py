"""Experience: questions, the policy's answers to them, and what the scorer makes of those. All RL trainers gather it here.

    asked = read_questions(path, tokenizer, max_tokens=256)
    found = gather(policy, sampler, asked.questions[:16], scorer, samples=8, max_new_tokens=200, temperature=1.0, stream="42:3")

An answer without a reward is missing, not worth 0: `present` marks the others. When too many are missing the run stops, because
what is left is no longer a sample of what the policy does. (A reward that is not finite cannot be: its contract refuses it.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from medloop.contracts import Conversation, Reward, Sample, Score, Scorer
from medloop.errors import InputError, ResultError
from medloop.models.inputs import read_items
from medloop.models.rollout.sampler import Rollouts, Sampled
from medloop.models.template import THINK, fit_prompt, opens_thinking, render_prompt
from medloop.train.rl.policy import Policy

Phase = Callable[[str, int, int], None]  # GENERATING or SCORING, done, wanted


@dataclass(frozen=True)
class Question:
    """A prompt as the model and as the scorer see it; `opening` is what the template has already begun to say."""

    id: str
    ids: tuple[int, ...]
    asked: str
    opening: str = ""
    context: str | None = None


@dataclass(frozen=True)
class Questions:
    questions: list[Question]
    too_long: int


@dataclass(frozen=True)
class Experience:
    """Answers in the order of the questions, those to one question side by side."""

    questions: list[Question]  # one per answer
    rows: list[Sampled]
    texts: list[str]
    rewards: list[Reward]

    @property
    def groups(self) -> list[str]:
        return [question.id for question in self.questions]

    def values(self) -> tuple[Tensor, Tensor]:
        """Rewards (N,) with 0 where there is none, and which are present (N,)."""
        present = torch.tensor([reward.value is not None for reward in self.rewards])
        return torch.tensor([reward.value or 0.0 for reward in self.rewards], dtype=torch.float32), present

    def sampled(self, device: torch.device) -> Tensor:
        """Log-probabilities (N, C) under the engine that drew the tokens, 0 behind the end."""
        longest = max(len(row.tokens) for row in self.rows)
        padded = [[*row.logprobs, *[0.0] * (longest - len(row.logprobs))] for row in self.rows]
        return torch.tensor(padded, device=device)

    def parts(self, weights: dict[str, float]) -> tuple[Tensor, Tensor, list[str]]:
        """The parts of the reward one by one (N, K), which are present, and their names; a penalty counts negative."""
        names = [name for name, weight in weights.items() if weight]
        table = [{p.name: p.value for p in r.parts if isinstance(p, Score) and p.applies} for r in self.rewards]
        values = torch.tensor([[row.get(name, 0.0) * math.copysign(1, weights[name]) for name in names] for row in table])
        return values, torch.tensor([[name in row for name in names] for row in table]), names

    def summary(self) -> dict[str, Any]:
        """What is worth a line in the log; no text."""
        values, present = self.values()
        lengths = [len(row.tokens) for row in self.rows]
        names = {part.name for reward in self.rewards for part in reward.parts}
        said = {name: [p.value for r in self.rewards for p in r.parts if p.name == name and isinstance(p, Score) and p.applies]
                for name in sorted(names)}  # fmt: skip
        return {
            "reward": _mean(values[present].tolist()),
            "reward_std": round(float(values[present].std()), 6) if int(present.sum()) > 1 else 0.0,
            "missing": int((~present).sum()),
            "parts": {name: mean for name, column in said.items() if (mean := _mean(column)) is not None},
            "length": _mean(lengths),
            "cut": round(sum(not row.ended for row in self.rows) / len(self.rows), 6),
            "distinct": round(len(set(self.texts)) / len(self.texts), 6),
        }


def read_questions(path: Path, tokenizer: Any, *, max_tokens: int, limit: int = 0) -> Questions:
    """Prompts of a file (records, messages or plain questions), each once; those that do not fit are counted."""
    found: dict[str, Question] = {}
    too_long = 0
    for item in read_items(path):
        messages = Conversation(messages=item.conversation.prompt)
        ids = fit_prompt(tokenizer, messages.messages, max_tokens)
        if ids is None:
            too_long += 1
            continue
        opening = f"{THINK}\n" if opens_thinking(render_prompt(tokenizer, messages.messages)) else ""
        name = item.id or f"line {item.line}"
        found.setdefault(name, Question(name, tuple(ids), messages.asked, opening, item.context))
        if limit and len(found) == limit:
            break
    if not found:
        raise InputError(f"{path} has no question that fits ({too_long} are longer than {max_tokens} tokens)", "Raise max_prompt")
    return Questions(list(found.values()), too_long)


def gather(
    policy: Policy,
    sampler: Rollouts,
    questions: Sequence[Question],
    scorer: Scorer,
    *,
    samples: int,
    max_new_tokens: int,
    temperature: float,
    stream: str,
    batch_size: int = 64,
    max_missing: float = 0.5,
    phase: Phase = lambda name, done, wanted: None,
) -> Experience:
    """`samples` answers to each question, scored. The stream's name decides the answers: the same name, the same experience."""
    asked = [question for question in questions for _ in range(samples)]
    streams = [f"{stream}:{question.id}:{at % samples}" for at, question in enumerate(asked)]
    rows = sampler(
        [question.ids for question in asked], streams, max_new_tokens=max_new_tokens, temperature=temperature,
        batch_size=batch_size, progress=lambda done, wanted: phase("GENERATING", done, wanted),
    )  # fmt: skip
    texts = [question.opening + policy.text(row.tokens) for question, row in zip(asked, rows, strict=True)]
    phase("SCORING", 0, len(rows))
    rewards = scorer.score(
        [
            Sample(id=name, question=question.asked, answer=text, group=question.id, context=question.context)
            for name, question, text in zip(streams, asked, texts, strict=True)
        ]
    )
    phase("SCORING", len(rows), len(rows))
    found = Experience(asked, rows, texts, rewards)
    _refuse_if_poor(found, max_missing)
    return found


def _refuse_if_poor(found: Experience, max_missing: float) -> None:
    missing = 1 - float(found.values()[1].float().mean())
    if missing > max_missing:
        why = next((reward.reason for reward in found.rewards if reward.value is None and reward.reason), "no reason given")
        raise ResultError(
            f"{missing:.0%} of the answers have no reward ({why[:160]}); at most {max_missing:.0%} may lack one",
            "Mend the scorer and run the same command: it goes on from the last checkpoint",
        )


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 6) if values else None
