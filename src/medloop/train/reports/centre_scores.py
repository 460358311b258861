"""Centre a reward model's score: mean and standard deviation of its logits on the answers of a reference policy.

The reference is a model that answers held-out prompts at temperature 1. Without one, the training answers take its place, chosen
and rejected alike, and `scoring.json` says so.
"""

from collections.abc import Sequence

import numpy as np

from medloop.errors import ResultError
from medloop.models.classify import Scoring
from medloop.models.find import parse_model
from medloop.models.generate import load_generator
from medloop.models.preference_model import JudgedAnswer, PreferenceModel
from medloop.settings import Settings
from medloop.train.configs.reward_model_config import RewardModelConfig
from medloop.train.examples.pairs import Pair
from medloop.train.reports.reward_report import ScoredPairs

MIN_STD = 1e-3  # the least standard deviation of reference logits


def centre_scores(
    model: PreferenceModel, base_sha256: str, config: RewardModelConfig, settings: Settings, *, answers: ScoredPairs,
    prompts: Sequence[Pair],
) -> Scoring:  # fmt: skip
    """How a lowered logit becomes a score. `answers` are scored training pairs, `prompts` held-out pairs."""
    if config.reference is None:
        logits = np.concatenate([answers.judged_chosen.lowered, answers.judged_rejected.lowered])
        spread = np.concatenate([answers.judged_chosen.spread, answers.judged_rejected.spread])
        reference = f"chosen and rejected answers of {len(answers.pairs):,} training pairs (no reference model was given)"
    else:
        judgements = _reference_answers(model, config.reference, config, settings, prompts)
        logits, spread = (np.array([getattr(row, name) for row in judgements]) for name in ("lowered", "spread"))
        reference = f"answers of {config.reference} to held-out prompts, drawn at temperature 1"
    return Scoring(
        base_sha256=base_sha256, max_length=config.max_length, mean=float(logits.mean()),
        std=max(float(logits.std()), MIN_STD), samples=len(logits), reference=reference, encoder=config.encoder,
        weights=model.weights, spread=float(spread.mean()),
    )  # fmt: skip


def describe_scoring(scoring: Scoring) -> str:
    return f"{scoring.reference}: {scoring.samples:,} answers, mean {scoring.mean:+.3f}, standard deviation {scoring.std:.3f}"


def _reference_answers(
    model: PreferenceModel, reference: str, config: RewardModelConfig, settings: Settings, pairs: Sequence[Pair]
) -> list[JudgedAnswer]:
    """The reference's answers as the reward model judges them; those that do not fit are left out."""
    distinct = list(dict.fromkeys(pair.prompt for pair in pairs))
    repeated = [distinct[index % len(distinct)] for index in range(config.reference_samples)]
    generate = load_generator(parse_model("reference", reference), settings)
    answers = generate(repeated, max_new_tokens=config.reference_tokens, temperature=1.0, seed=config.seed)
    usable = [(p, a.text) for p, a in zip(repeated, answers, strict=True) if a.finish_reason != "error" and a.text.strip()]
    judgements = [result for result in model.judge(usable) if isinstance(result, JudgedAnswer)]
    if len(judgements) < 2:
        raise ResultError(f"{reference} gave fewer than two answers that can be scored", "Use another reference")
    return judgements
