"""`medloop train`: one file per family of methods."""

from medloop.cli.train import preference, rl
from medloop.cli.train.sft import register

__all__ = ["preference", "register", "rl"]
