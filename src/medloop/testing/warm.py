"""The fork server imports this: what each child would load for itself, in ten times the seconds of its whole run."""

import gc
from importlib import import_module

from medloop.lexicon.load import load_lexicon

TRAINERS = (
    "sft",
    "preference",
    "reward_model",
    "ppo",
    "grpo",
    "irs",
    "trl.sft_trainer",
    "trl.preference_trainer",
    "trl.reward_trainer",
)
MODULES = (
    *(f"medloop.train.{name}" for name in TRAINERS),
    *(f"medloop.reward.{name}" for name in ("mix", "dynamic", "word_overlap", "relevance")),
    *(f"medloop.store.{name}" for name in ("db", "catalog", "rotate", "records.crud")),
    *("medloop.evaluate.run", "medloop.cli", "medloop.web.app"),
    *("matplotlib.figure", "peft.tuners.lora.bnb", "psycopg", "sqlalchemy.dialects.sqlite", "uvicorn"),
)
for name in MODULES:
    import_module(name)
load_lexicon()
gc.freeze()  # none of this is ever garbage, and a child that looks at it copies it
