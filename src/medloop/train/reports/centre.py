"""Where the middle of a reward model's score lies: mean and spread of the logits of what a reference policy says.

The reference is a model that answers held-out prompts, drawn at temperature 1. Where none is named, the training answers stand in
for it, chosen and rejected alike, and `scoring.json` says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from medloop.contracts import Message, ModelRef
from medloop.errors import ConfigError, ResultError
from medloop.models.classify import Classifier, Scoring, encode
from medloop.models.generate import load_generator
from medloop.settings import Settings
from medloop.train.reports.pair_numbers import Numbers

LEAST = 1e-3  # the least spread of reference logits that is divided by
Prompt = tuple[Message, ...]


class Knobs(Protocol):
    """What a run says about its reference."""

    @property
    def reference(self) -> str | None: ...
    @property
    def reference_samples(self) -> int: ...
    @property
    def reference_tokens(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def seed(self) -> int: ...


def centre(trained: Classifier, config: Knobs, settings: Settings, *, answers: Numbers, prompts: Sequence[Prompt]) -> Scoring:
    """How a logit becomes a score. `answers` are logits of training answers, `prompts` those of held-out pairs."""
    if config.reference is None:
        logits = answers
        what = f"chosen and rejected answers of {len(answers) // 2:,} training pairs (no reference model was given)"
    else:
        logits = np.array(trained.logits(_rows(trained, config.reference, config, settings, prompts)))
        what = f"answers of {config.reference} to held-out prompts, drawn at temperature 1"
    return Scoring(
        base_sha256=trained.sha256,
        max_length=config.max_length,
        mean=float(logits.mean()),
        std=max(float(logits.std()), LEAST),
        samples=len(logits),
        reference=what,
    )


def in_words(scoring: Scoring) -> str:
    return f"{scoring.reference}: {scoring.samples:,} answers, mean {scoring.mean:+.3f}, standard deviation {scoring.std:.3f}"


def reference_of(spec: str) -> ModelRef:
    """`BASE` or `BASE+ADAPTER`; a folder whose own name has a plus sign is taken as it is."""
    base, plus, adapter = (spec, "", "") if Path(spec).expanduser().is_dir() else spec.partition("+")
    if not base or (plus and not adapter):
        raise ConfigError(f"reference is {spec}, which is not BASE or BASE+ADAPTER", "Example: embedded:tiny+models/lora/sft")
    return ModelRef(base=base, adapter=adapter or None)


def _rows(trained: Classifier, reference: str, config: Knobs, settings: Settings, prompts: Sequence[Prompt]) -> list[list[int]]:
    """The reference's answers as the classifier reads them; those that cannot be read are passed over."""
    known = list(dict.fromkeys(prompts))
    asked = [known[at % len(known)] for at in range(config.reference_samples)]
    generate = load_generator(reference_of(reference), settings)
    answers = generate(asked, max_new_tokens=config.reference_tokens, temperature=1.0, seed=config.seed)
    usable = [(p, a.text) for p, a in zip(asked, answers, strict=True) if a.finish_reason != "error" and a.text.strip()]
    rows = [encode(trained.tokenizer, prompt, text, max_length=config.max_length) for prompt, text in usable]
    read = [row.ids for row in rows if row is not None]
    if len(read) < 2:
        raise ResultError(f"{reference} gave fewer than two answers that can be scored", "Take another reference")
    return read
