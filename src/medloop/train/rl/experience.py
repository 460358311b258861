"""Prompts to train on, and the experience that comes of them: the policy's answers with their rewards.

    file = read_prompts(path, tokenizer, max_tokens=256)
    rewards, present = experience.reward_tensor()

An answer without a reward is missing, not worth 0: `present` marks the others. (A reward cannot be infinite or NaN: its contract
refuses it.)
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from medloop.contracts import Conversation, Reward, Score
from medloop.errors import InputError
from medloop.models.context_prompt import fit_with_context
from medloop.models.rollout.rollouts import Rollout
from medloop.models.template import THINK, opens_thinking, render_prompt
from medloop.store.files.answer_lines import read_conversations
from medloop.train.rl.degraded import missing_parts


@dataclass(frozen=True)
class RLPrompt:
    """A prompt as the model and as the scorer see it; `opening` is the start of the answer that the template itself writes.

    `context` are the passages as they stand in the prompt, so that an answer is held only to what the policy could read.
    """

    id: str
    token_ids: tuple[int, ...]
    question: str
    opening: str = ""
    context: str | None = None


@dataclass(frozen=True)
class ContextCounts:
    """How many prompts came with passages, how many of those show them shortened, and how many show none of them."""

    prompts: int = 0
    truncated: int = 0
    without: int = 0

    def sentences(self) -> list[str]:
        """What a person should know about the passages; empty where there is nothing to say."""
        if not self.prompts:
            return []
        lines = [f"{self.prompts:,} questions have context passages."]
        if self.truncated:
            lines.append(f"{self.truncated:,} show them truncated to max_prompt; raise it to show more.")
        if self.without:
            lines.append(f"{self.without:,} have no room for any passage, so faith and conc do not apply to their answers.")
        return lines


NO_CONTEXTS = ContextCounts()


@dataclass(frozen=True)
class PromptFile:
    """The prompts of a file, how many were too long, and what became of their passages."""

    prompts: list[RLPrompt]
    too_long: int
    contexts: ContextCounts = NO_CONTEXTS


@dataclass(frozen=True)
class Experience:
    """Answers in the order of their prompts, those to one prompt side by side. All four lists have one entry per answer."""

    prompts: list[RLPrompt]
    rollouts: list[Rollout]
    texts: list[str]
    rewards: list[Reward]

    @property
    def groups(self) -> list[str]:
        return [prompt.id for prompt in self.prompts]

    def reward_tensor(self) -> tuple[Tensor, Tensor]:
        """Rewards (N,) with 0 where there is none, and which are present (N,)."""
        present = torch.tensor([reward.value is not None for reward in self.rewards])
        return torch.tensor([reward.value or 0.0 for reward in self.rewards], dtype=torch.float32), present

    def part_rewards(self, weights: dict[str, float]) -> tuple[Tensor, Tensor, list[str]]:
        """The parts of the reward one by one (N, K), which are present, and their names; a penalty counts negative.

        What a gate of the mix does not let count is not earned here either.
        """
        names = [name for name, weight in weights.items() if weight]
        table = [
            {p.name: p.value * (r.gate if weights.get(p.name, 0.0) > 0 else 1.0)
             for p in r.parts if isinstance(p, Score) and p.applies}
            for r in self.rewards
        ]  # fmt: skip
        values = torch.tensor([[row.get(name, 0.0) * math.copysign(1, weights[name]) for name in names] for row in table])
        return values, torch.tensor([[name in row for name in names] for row in table]), names

    def sampled_logprobs(self, device: torch.device) -> Tensor:
        """Log-probabilities (N, C) under the engine that drew the tokens, 0 after the end of an answer."""
        longest = max(len(rollout.tokens) for rollout in self.rollouts)
        padded = [[*rollout.logprobs, *[0.0] * (longest - len(rollout.logprobs))] for rollout in self.rollouts]
        return torch.tensor(padded, device=device)

    def completion_mask(self, device: torch.device) -> Tensor:
        """(N, C): the tokens that the policy wrote, its end token included."""
        lengths = torch.tensor([len(rollout.tokens) for rollout in self.rollouts], device=device)
        return torch.arange(int(lengths.max()), device=device) < lengths[:, None]

    def ended(self, device: torch.device) -> Tensor:
        """(N,): which answers came to their end token; the others were truncated."""
        return torch.tensor([rollout.ended for rollout in self.rollouts], device=device)

    def mean_part_weights(self) -> dict[str, float]:
        """The mean weight of each part in these rewards: parts that were missing weigh less."""
        names = sorted({name for reward in self.rewards for name in reward.weights})
        return {name: round(sum(r.weights.get(name, 0.0) for r in self.rewards) / len(self.rewards), 6) for name in names}

    def summary(self) -> dict[str, Any]:
        """The numbers for the log; no text."""
        rewards, present = self.reward_tensor()
        names = {part.name for reward in self.rewards for part in reward.parts}
        parts = {name: [p.value for r in self.rewards for p in r.parts if p.name == name and isinstance(p, Score) and p.applies]
                 for name in sorted(names)}  # fmt: skip
        return {
            "reward": _mean(rewards[present].tolist()),
            "reward_std": round(float(rewards[present].std()), 6) if int(present.sum()) > 1 else 0.0,
            "answers": len(self.rewards),
            "missing": int((~present).sum()),
            "missing_parts": missing_parts(self.rewards),
            "parts": {name: mean for name, values in parts.items() if (mean := _mean(values)) is not None},
            "length": _mean([len(rollout.tokens) for rollout in self.rollouts]),
            "truncated": round(sum(not rollout.ended for rollout in self.rollouts) / len(self.rollouts), 6),
            "distinct": round(len(set(self.texts)) / len(self.texts), 6),
        }


def read_prompts(path: Path, tokenizer: Any, *, max_tokens: int, top_k: int = 3, limit: int = 0) -> PromptFile:
    """Prompts of a file (records, messages or plain questions), each once; those that do not fit are counted.

    The first `top_k` context passages of a question stand in its prompt, as far as they fit.
    """
    prompts: dict[str, RLPrompt] = {}
    too_long, seen = 0, Counter[str]()
    for item in read_conversations(path):
        name = item.ids[0] if item.ids else f"line {item.number}"
        if name in prompts:
            continue
        conversation = Conversation(messages=item.conversation.prompt)
        prompt = fit_with_context(tokenizer, conversation.messages, item.passages[:top_k], max_tokens)
        if prompt is None:
            too_long += 1
            continue
        opening = f"{THINK}\n" if opens_thinking(render_prompt(tokenizer, prompt.messages)) else ""
        context = "\n".join(prompt.shown) or None
        prompts[name] = RLPrompt(name, prompt.token_ids, conversation.user_text, opening, context)
        if item.passages:
            seen["prompts"] += 1
            seen["truncated"] += bool(prompt.shown) and (prompt.truncated or prompt.left_out > 0)
            seen["without"] += not prompt.shown
        if limit and len(prompts) == limit:
            break
    if not prompts:
        raise InputError(f"{path} has no question that fits ({too_long} are longer than {max_tokens} tokens)", "Raise max_prompt")
    return PromptFile(list(prompts.values()), too_long, ContextCounts(**seen))


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 6) if values else None
