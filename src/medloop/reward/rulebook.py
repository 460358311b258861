"""`data/rl/reward_rules.md`: the parts of a reward, generated from its configuration and from the docstrings of the rules."""

import sys

from medloop.contracts import Component, Rule
from medloop.contracts.score import SERIOUS
from medloop.reward.mix import MixConfig, RewardMix


def rulebook(mix: RewardMix) -> str:
    """The whole page as Markdown."""
    config = mix.config
    lines = [
        "# Reward rules",
        "",
        f"Written by `medloop reward rules`. Reward version: `{mix.version}`.",
        "",
        f"    R = {reward_formula(mix)}",
        "",
        *_computation(mix),
        "",
        "| part | weight | range of the weight | better | source | version | required |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, part in config.parts.items():
        scorer = _scorer(mix, name)
        is_penalty = scorer.penalty if scorer else part.weight < 0
        version = scorer.version if scorer else "absent"
        low, high = weight_range(config, name)
        weights = f"{low:+.3g}" if low == high else f"{low:+.3g} … {high:+.3g}"
        row = [name, f"{part.weight:+g}", weights, "lower" if is_penalty else "higher", _source(mix, name), f"`{version}`"]
        lines.append("| " + " | ".join([*row, "yes" if part.required else "no"]) + " |")
    for name in config.parts:
        lines += ["", f"## {name}", "", *_definition(mix, name)]
    return "\n".join(lines) + "\n"


def weight_range(config: MixConfig, name: str) -> tuple[float, float]:
    """The weights that a part can have: larger than configured where other positive parts are missing that may be."""
    weight, positive = config.parts[name].weight, {key: part for key, part in config.parts.items() if part.weight > 0}
    present = [part.weight for key, part in positive.items() if part.required or key == name]
    least = sum(present) or min(part.weight for part in positive.values())
    largest = weight * sum(part.weight for part in positive.values()) / least
    return min(weight, largest), max(weight, largest)


def reward_formula(mix: RewardMix) -> str:
    """`0.35·chain - 0.15·risk`: the weighted parts, in order."""
    parts = [(part.weight, name) for name, part in mix.config.parts.items() if part.weight]
    text = "".join(f" {'-' if weight < 0 else '+'} {abs(weight):g}·{name}" for weight, name in parts)
    return text.removeprefix(" + ").strip()


def _computation(mix: RewardMix) -> list[str]:
    config = mix.config
    low, high = (sum(p.weight for p in config.parts.values() if (p.weight > 0) is sign) for sign in (False, True))
    if config.normalise == "none":
        lines = [f"- Plain sum, from {low:g} to {high:g}, clipped to {config.bounds[0]:g} … {config.bounds[1]:g}."]
    else:
        bound = config.z_bound * (high - low)
        lines = [
            f"- Each part is normalised to mean 0 and standard deviation 1 over its {config.normalise}, clipped to "
            f"±{config.z_bound:g}, then summed: R is within ±{bound:g}."
        ]
    return [
        *lines,
        *_gates(mix),
        "- A part that is missing or does not apply is left out. All other weights grow by one factor, so that the positive ones "
        "keep their sum.",
        "- If a required part or a gate is missing, the sample has no reward. A missing part never counts as 0.",
        "- A rule that fails is a missing part.",
        f"- Answers on which teacher and rules differ by more than {config.conflict:g} are written to `teacher_conflicts.jsonl`.",
    ]


def _gates(mix: RewardMix) -> list[str]:
    names = [name for name, part in mix.config.parts.items() if part.gate]
    if not names:
        return []
    below = f"below it, they count by 1 - value / {SERIOUS:g}"
    return [f"- Gate: {', '.join(names)}. At {SERIOUS:g} or more the positive parts earn nothing; {below}."]


def _scorer(mix: RewardMix, name: str) -> Rule | Component | None:
    return mix.rules.get(name) or mix.given.get(name)


def _source(mix: RewardMix, name: str) -> str:
    if name in mix.absent:
        return "given: absent"
    return "given" if name in mix.given else "rule"


def _definition(mix: RewardMix, name: str) -> list[str]:
    """The docstring of its module: one source for code and page."""
    scorer = _scorer(mix, name)
    if scorer is None:
        return ["Given by the caller. It is absent here, and the other parts share its weight."]
    text = sys.modules[type(scorer).__module__].__doc__ or type(scorer).__doc__ or "No description."
    return text.strip().splitlines()
