"""What holds for the settings of every run, whatever the method."""

from __future__ import annotations

SMALL_MODEL = 20_000_000  # parameters; so small a model learns best at ten to a hundred times the usual rate
