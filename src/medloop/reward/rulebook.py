"""`data/rl/reward_rules.md`: what a reward is made of, written from the code and the configuration that make it."""

from __future__ import annotations

import sys

from medloop.contracts import Component, Rule
from medloop.reward.mix import Mix


def rulebook(mix: Mix) -> str:
    """The whole page as Markdown."""
    config = mix.config
    lines = [
        "# Reward rules",
        "",
        f"Written by `medloop reward rules`. Version of the whole: `{mix.version}`.",
        "",
        f"    R = {formula(mix)}",
        "",
        *_how(mix),
        "",
        "| part | weight | good is | source | version | required |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in config.parts.items():
        found = _found(mix, name)
        low = found.penalty if found else part.weight < 0
        row = [name, f"{part.weight:+g}", "low" if low else "high", _source(mix, name), f"`{_version(mix, name)}`"]
        lines.append("| " + " | ".join([*row, "yes" if part.required else "no"]) + " |")
    for name in config.parts:
        lines += ["", f"## {name}", "", *_definition(mix, name)]
    return "\n".join(lines) + "\n"


def formula(mix: Mix) -> str:
    """`0.35·chain - 0.15·risk`: what is mixed, in order."""
    parts = [(part.weight, name) for name, part in mix.config.parts.items() if part.weight]
    text = "".join(f" {'-' if weight < 0 else '+'} {abs(weight):g}·{name}" for weight, name in parts)
    return text.removeprefix(" + ").strip()


def _how(mix: Mix) -> list[str]:
    config = mix.config
    low, high = (sum(p.weight for p in config.parts.values() if (p.weight > 0) is sign) for sign in (False, True))
    if config.normalise == "none":
        lines = [f"- Plain sum, from {low:g} to {high:g}; cut to {config.bounds[0]:g} … {config.bounds[1]:g}."]
    else:
        reach = config.z_bound * (high - low)
        lines = [
            f"- Each part is brought to mean 0 and spread 1 over its {config.normalise}, cut to ±{config.z_bound:g}, "
            f"then summed: R lies within ±{reach:g}."
        ]
    return [
        *lines,
        "- A part that is missing or does not apply is left out; the other weights of what can be earned grow to the same sum.",
        "- A missing part that is required leaves the sample without a reward. Missing is never 0.",
        f"- Teacher and rules more than {config.conflict:g} apart are written to `teacher_conflicts.jsonl`.",
    ]


def _found(mix: Mix, name: str) -> Rule | Component | None:
    return mix.rules.get(name) or mix.given.get(name)


def _source(mix: Mix, name: str) -> str:
    if name in mix.absent:
        return "given: absent"
    return "given" if name in mix.given else "rule"


def _version(mix: Mix, name: str) -> str:
    found = _found(mix, name)
    return found.version if found else "absent"


def _definition(mix: Mix, name: str) -> list[str]:
    """The docstring of the module that scores it: one source for code and page."""
    found = _found(mix, name)
    if found is None:
        return ["Handed in by the caller. Nobody did: declared absent, and its weight is carried by the other parts."]
    said = sys.modules[type(found).__module__].__doc__ or type(found).__doc__ or "No description."
    return said.strip().splitlines()
