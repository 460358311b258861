"""`medloop demo`: the whole path in one command."""

from medloop.cli.demo.demo import register

__all__ = ["register"]
