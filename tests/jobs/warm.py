"""The fork server imports this: what each child would load for itself, in five times the seconds of its whole run."""

from importlib import import_module

from medloop.lexicon.load import load_lexicon

TRAINERS = ("medloop.train.ppo", "medloop.train.grpo", "medloop.train.irs", "medloop.evaluate.run")
REWARDS = ("medloop.reward.mix", "medloop.reward.dynamic", "medloop.reward.word_overlap", "medloop.reward.relevance")
REST = ("medloop.store.db", "medloop.store.catalog", "sqlalchemy.dialects.sqlite", "peft.tuners.lora.bnb", "matplotlib.figure")

for name in TRAINERS + REWARDS + REST:
    import_module(name)
load_lexicon()
