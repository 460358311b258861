"""Centre a reward model's score: mean and standard deviation of its logits on the answers of a reference policy.

The reference is a model that answers held-out prompts at temperature 1. Without one, the training answers take its place, chosen
and rejected alike, and `scoring.json` says so.
"""

from collections.abc import Sequence

import numpy as np

from medloop.bootstrap import Numbers
from medloop.contracts import Message
from medloop.errors import ResultError
from medloop.models.classify import Classifier, Scoring, encode
from medloop.models.find import parse_model
from medloop.models.generate import load_generator
from medloop.settings import Settings
from medloop.train.configs.reward_model_config import RewardModelConfig

MIN_STD = 1e-3  # the least standard deviation of reference logits
Prompt = tuple[Message, ...]


def centre_scores(
    trained: Classifier, config: RewardModelConfig, settings: Settings, *, answers: Numbers, prompts: Sequence[Prompt]
) -> Scoring:
    """How a logit becomes a score. `answers` are logits of training answers, `prompts` those of held-out pairs."""
    if config.reference is None:
        logits = answers
        reference = f"chosen and rejected answers of {len(answers) // 2:,} training pairs (no reference model was given)"
    else:
        logits = np.array(trained.logits(_reference_answers(trained, config.reference, config, settings, prompts)))
        reference = f"answers of {config.reference} to held-out prompts, drawn at temperature 1"
    return Scoring(
        base_sha256=trained.sha256, max_length=config.max_length, mean=float(logits.mean()),
        std=max(float(logits.std()), MIN_STD), samples=len(logits), reference=reference,
    )  # fmt: skip


def describe_scoring(scoring: Scoring) -> str:
    return f"{scoring.reference}: {scoring.samples:,} answers, mean {scoring.mean:+.3f}, standard deviation {scoring.std:.3f}"


def _reference_answers(
    trained: Classifier, reference: str, config: RewardModelConfig, settings: Settings, prompts: Sequence[Prompt]
) -> list[list[int]]:
    """The reference's answers as the classifier reads them; those that do not fit are left out."""
    distinct = list(dict.fromkeys(prompts))
    repeated = [distinct[index % len(distinct)] for index in range(config.reference_samples)]
    generate = load_generator(parse_model("reference", reference), settings)
    answers = generate(repeated, max_new_tokens=config.reference_tokens, temperature=1.0, seed=config.seed)
    usable = [(p, a.text) for p, a in zip(repeated, answers, strict=True) if a.finish_reason != "error" and a.text.strip()]
    encoded = [encode(trained.tokenizer, prompt, text, max_length=config.max_length) for prompt, text in usable]
    rows = [row.ids for row in encoded if row is not None]
    if len(rows) < 2:
        raise ResultError(f"{reference} gave fewer than two answers that can be scored", "Use another reference")
    return rows
