"""Metrics, question sets, groups of patients and checks of the gate by the names that people use; words/measures.yaml.

    check_name("non_inferiority/red/undertriage", t)     # "Not worse than the baseline · red-team set · under-triage"

A name that somebody made up, such as an own suite, stays as it is.
"""

from medloop.contracts.validity import JUDGE_NAMES, judge_name
from medloop.evaluate.hacking.slices import ALL
from medloop.web.words import Translator

JOINT = " · "


def metric_name(name: str, t: Translator) -> str:
    return t.or_plain(f"measure_{name}", judge_name(name, t.language))


def split_name(name: str, t: Translator) -> str:
    return t.or_plain(f"measure_set_{name}", name)


def stratum_name(name: str, t: Translator) -> str:
    kind, _, value = name.rpartition(":")
    if kind == "language":
        return t.or_plain(f"measure_language_{value}", name)
    return t.or_plain(f"trust_stratum_{name}", name)


def slice_part(name: str, t: Translator) -> str:
    """A part of the name of a slice of the panel: all questions, or a language."""
    return t("measure_all_questions") if name == ALL else t.or_plain(f"in_language_{name}", name)


def part_name(name: str, t: Translator) -> str:
    """A part of the reward inside a sentence; anything else stays."""
    return metric_name(name, t) if name in JUDGE_NAMES else name


def check_name(name: str, t: Translator) -> str:
    """A check of the gate: its family, then the question set, the metric and the group that its name has."""
    family, *rest = name.split("/")
    words = [t.or_plain(f"measure_check_{family}", family.replace("_", " "))]
    for place, part in enumerate(rest):  # FAMILY/SET/METRIC/GROUP, or FAMILY/LANGUAGE
        names = (split_name, stratum_name, metric_name) if place == 0 else (stratum_name,) if place == 2 else (metric_name,)
        words.append(next((known for name in names if (known := name(part, t)) != part), part))
    return JOINT.join(words)
