"""All regular expressions of the scrubber, for tests of how they are searched."""

import functools
import gc
import importlib
import pkgutil
import types

import numpy as np
import pytest

from medloop.privacy import phi
from medloop.privacy.phi import guards


@pytest.fixture(scope="session")
def expressions() -> list[tuple[str, int]]:
    """All of the scrubber: those in its modules, and in tables, partials and closures there."""
    names = [module.name for module in pkgutil.walk_packages(phi.__path__, f"{phi.__name__}.")]
    waiting = [value for name in names for value in vars(importlib.import_module(name)).values()]
    seen, patterns = set[int](), dict[tuple[str, int], None]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, type | types.ModuleType | str | int | float | np.ndarray | set | frozenset):
            continue
        seen.add(id(value))
        if isinstance(value, guards._GuardedPattern):
            patterns[value.pattern, value._given_flags] = None
        elif isinstance(value, types.FunctionType):
            waiting += [cell.cell_contents for cell in value.__closure__ or ()]
        elif isinstance(value, tuple | list | dict | functools.partial) and len(gc.get_referents(value)) < 1000:
            waiting += gc.get_referents(value)
    return list(patterns)
