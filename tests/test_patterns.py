"""Expressions are compiled when they are first used, and then they are what `re` makes of them."""

import re
import subprocess
import sys

import pytest

from medloop.patterns import lazy_pattern

# Which modules with many expressions compile one while a command that scores is imported.
IMPORT = """
import re, sys
callers, compile = set(), re.compile
def recorded(*args, **flags):
    callers.add(sys._getframe(1).f_globals["__name__"])
    return compile(*args, **flags)
re.compile = recorded
import medloop.cli.reward
many = tuple(f"medloop.{part}." for part in ("lexicon", "reward", "privacy.phi", "teacher.injection", "data.text"))
print(*sorted(name for name in callers if name.startswith(many)))
"""


def test_importing_a_command_compiles_hardly_any_expression() -> None:
    result = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["medloop.lexicon.scan"]  # the one that the lists are read with


def test_a_lazy_pattern_searches_like_a_compiled_one() -> None:
    lazy, compiled = (
        lazy_pattern(r"(?P<drug>aspirin|nsaids?)", re.IGNORECASE),
        re.compile(r"(?P<drug>aspirin|nsaids?)", re.IGNORECASE),
    )
    text = "Aspirin, or another NSAID."
    assert lazy.pattern == compiled.pattern
    assert lazy.findall(text) == compiled.findall(text) == ["Aspirin", "NSAID"]
    assert [match.span("drug") for match in lazy.finditer(text, 3)] == [(20, 25)]
    assert (lazy.sub("X", text), lazy.split(text), lazy.flags) == (compiled.sub("X", text), compiled.split(text), compiled.flags)
    assert lazy.match(text) and not lazy.fullmatch(text)


def test_a_broken_expression_is_named_at_its_first_use() -> None:
    broken = lazy_pattern("(aspirin")
    with pytest.raises(re.error):
        broken.search("aspirin")
