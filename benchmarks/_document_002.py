"""Pairs -> reward model -> PPO, and whether another judge sees the gain.

Half of the questions of a set trains the reward model that PPO gets; the other half trains a second one, the gold model, which
PPO never sees. Both are ensembles of heads. The policy is `embedded:tiny`, first taught by SFT to answer like the chosen answers
of the reward model's half. The gain is the gold model's reward after minus before PPO, on questions that neither was trained on.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np

from medloop.bootstrap import interval
from medloop.contracts import Message, ModelRef
from medloop.loop.train import STAGES, run_stage
from medloop.models.generate import load_generator
from medloop.reward.model import RewardModel, load_reward_model
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.train.configs.reward_model_config import RewardModelConfig
from medloop.train.configs.rl_config import PPOConfig
from medloop.train.configs.sft_config import SFTConfig
from medloop.train.examples.pairs import Pair

LONGEST_ANSWER = 200  # characters of an answer that teaches the policy: it writes short ones
TOKENS = 64
HELD_OUT = 160  # questions


def side_of(pair: Pair) -> str:
    """A question belongs to the reward model, to the gold model, or to the questions held out from both."""
    return ("reward", "gold", "reward", "gold", "held_out")[zlib.crc32(pair.first_question.encode()) % 5]


def document_002(settings: Settings, pairs: list[Pair], *, steps: int, seed: int, length_free: bool) -> dict[str, Any]:
    sides: dict[str, list[Pair]] = {"reward": [], "gold": [], "held_out": []}
    for pair in pairs:
        sides[side_of(pair)].append(pair)
    models = {name: _reward_model(settings, name, sides[name], seed, length_free) for name in ("reward", "gold")}
    _write_questions(settings, sides)
    run_stage(STAGES["SFT"], SFTConfig(name="sft", data="sft.jsonl", epochs=1, max_length=256, max_steps=40, seed=seed), settings)
    config = PPOConfig(
        name="ppo", adapter="sft", prompts="questions.jsonl", held_out="held_out.jsonl", reward="model.yaml",
        given={"model": "models/reward/reward"}, steps=steps, eval_every=steps, held_out_n=32, held_out_samples=1,
        prompts_per_step=8, samples=8, max_new_tokens=TOKENS, on_alarm="warn", seed=seed, accept_untrusted=True,
    )  # fmt: skip
    card = run_stage(STAGES["PPO"], config, settings).card
    questions = [row["question"] for row in jsonl.read(settings.home / "held_out.jsonl")]
    answers = {
        name: _answers(settings, folder, questions, seed) for name, folder in (("before", "lora/sft"), ("after", "rl/ppo"))
    }
    return {
        "pairs": {name: len(side) for name, side in sides.items()}, "steps": steps, "seed": seed, "length_free": length_free,
        "reward_model": _accuracy(settings, "reward"), "gold_model": _accuracy(settings, "gold"),
        "agreement_of_both_on_held_out_pairs": _agreement(models, sides["held_out"]),
        "reward": {key: card.metrics[key] for key in ("reward_first", "reward_last", "kl_last") if key in card.metrics},
        "own_gain": {key: value for key, value in card.metrics.items() if key.startswith("held_out_gain")},
        "alarms": list(card.alarms),
        "gains": {name: _gain(model, questions, answers, seed) for name, model in models.items()},
        "length": {name: float(np.mean([len(answer) for answer in texts])) for name, texts in answers.items()},
    }  # fmt: skip


def _reward_model(settings: Settings, name: str, pairs: list[Pair], seed: int, length_free: bool) -> RewardModel:
    rows = [{"prompt": [m.model_dump() for m in p.prompt], "chosen": p.chosen, "rejected": p.rejected} for p in pairs]
    jsonl.write(settings.home / f"{name}.jsonl", rows)
    config = RewardModelConfig(name=name, data=f"{name}.jsonl", encoder="none", length_free=length_free, seed=seed)
    run_stage(STAGES["REWARD"], config, settings)
    return load_reward_model(name, settings)


def _write_questions(settings: Settings, sides: dict[str, list[Pair]]) -> None:
    """SFT examples and PPO questions from the reward model's half, held-out questions from the third part."""

    def of(side: str) -> list[str]:
        return list(dict.fromkeys(pair.prompt[-1].content for pair in sides[side]))

    chosen = {pair.prompt[-1].content: pair.chosen[:LONGEST_ANSWER] for pair in sides["reward"]}
    examples = [{"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]} for q, a in chosen.items()]
    jsonl.write(settings.home / "sft.jsonl", examples)
    for name, questions in (("questions", of("reward")), ("held_out", of("held_out")[:HELD_OUT])):
        jsonl.write(settings.home / f"{name}.jsonl", [{"id": f"{name}-{n}", "question": q} for n, q in enumerate(questions)])
    mix = {"parts": {"model": {"weight": 1.0, "given": True}}}
    (settings.home / "model.yaml").write_text(json.dumps(mix), encoding="utf-8")


def _answers(settings: Settings, folder: str, questions: list[str], seed: int) -> list[str]:
    generate = load_generator(ModelRef(base="embedded:tiny", adapter=str(settings.workspace.models / folder)), settings)
    prompts = [(Message(role="user", content=question),) for question in questions]
    replies = generate(prompts, max_new_tokens=TOKENS, temperature=1.0, seed=seed)
    return [reply.text for reply in replies]


def _gain(model: RewardModel, questions: list[str], answers: dict[str, list[str]], seed: int) -> dict[str, Any]:
    """Paired by question; a question where one answer is empty is left out."""
    values = [
        [
            judged[0] if (judged := model.judge(question, answer)) else None
            for question, answer in zip(questions, side, strict=True)
        ]
        for side in (answers["before"], answers["after"])
    ]
    gains = [after - before for before, after in zip(*values, strict=True) if before is not None and after is not None]
    return interval(gains, seed=seed, name="gain").model_dump()


def _agreement(models: dict[str, RewardModel], pairs: list[Pair]) -> float:
    """How often the two models put a pair of neither's half into the same order."""
    orders = []
    for model in models.values():
        judged = [model.model.judge_all([(pair.prompt, pair.chosen), (pair.prompt, pair.rejected)]).lowered for pair in pairs]
        orders.append(np.array([first > second for first, second in judged]))
    return float((orders[0] == orders[1]).mean())


def _accuracy(settings: Settings, name: str) -> dict[str, Any]:
    report = json.loads((settings.workspace.models / "reward" / name / "report.json").read_text(encoding="utf-8"))
    return {"test": report["test"], "baselines": report["baselines"], "ahead_of": report["ahead_of"]}
