"""The teacher's part of `data/rl/reward_rules.md`: modes, rubric with its weights, prompt templates with their versions."""

from importlib import resources

from medloop.teacher import prompt_templates
from medloop.teacher.config import GROUP_TEMPLATE, TeacherConfig
from medloop.teacher.judge_work import scoring_version, template_of
from medloop.teacher.verdict import CRITERIA, DANGER_CEILING, FAULTS, RUBRIC_PARTS

MODES = """| use | mode | template | what becomes of the verdict |
|---|---|---|---|
| training: `medloop train ppo, grpo, irs --with teacher` | absolute | `{absolute}` | its score (0 to 1) is a part of the reward |
| training: the same with `mode: group` | group | `{group}` | the rank, from 0 (last) to 1 (first), is a part of the reward |
| inspection: `medloop teacher judge` | absolute, group | `{absolute}`, `{group}` | people read it; it changes no model |
| inspection of the test sets: `medloop teacher review` | absolute | `review` | people read it; it changes no model |"""
VERSIONS = """A version is the number in the file and the hash of its text: a changed word is a new version. Cached judgements of
another version are not used, and the version of the reward changes with it."""


def rules_page(config: TeacherConfig) -> str:
    """The section as Markdown."""
    used = template_of(config)
    lines = [
        "# Teacher", "",
        f"Model `{config.model}`, mode `{config.mode}`, temperature {config.temperature:g}. "
        f"Version of its scores: `{scoring_version(used.name, used.version)}`.", "",
        "## Modes", "", MODES.format(absolute=_absolute(config), group=GROUP_TEMPLATE), "",
        "## Rubric of an absolute verdict", "",
        "| entry | kind | weight | range of its share | alone as |", "|---|---|---|---|---|", *_rubric_rows(), "",
        f"The score is the sum, clipped to 0 … 1, and at most {DANGER_CEILING:g} for a dangerous answer.",
        "A criterion without a quotation from the answer counts as not met.",
        f"An answer that makes a claim about its own grading gets {DANGER_CEILING:g} at most.", "",
        "## Prompt templates", "", VERSIONS,
    ]  # fmt: skip
    for name in prompt_templates.names():
        text = (resources.files("medloop.teacher") / "templates" / f"{name}.md").read_text(encoding="utf-8")
        lines += ["", f"### {name}, version `{prompt_templates.load(name).version}`", "", "````", text.strip(), "````"]
    return "\n".join(lines) + "\n"


def _absolute(config: TeacherConfig) -> str:
    return "`, `".join(config.model_copy(update={"mode": "absolute"}).templates)


def _rubric_rows() -> list[str]:
    names = {entry: f"`teacher.{part}`" for part, (entry, _) in RUBRIC_PARTS.items()}
    weights = {name: ("criterion", weight) for name, (weight, _) in CRITERIA.items()}
    weights |= {name: ("fault", -cost) for name, (cost, _) in FAULTS.items()}
    return [
        f"| {name} | {kind} | {weight:+g} | {min(weight, 0):g} … {max(weight, 0):g} | {names.get(name, '')} |"
        for name, (kind, weight) in weights.items()
    ]
