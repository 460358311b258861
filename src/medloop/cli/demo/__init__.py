"""`medloop demo`: the whole loop in one command."""

from medloop.cli.demo.demo import register

__all__ = ["register"]
