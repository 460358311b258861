"""The report of an experiment as files: `report.json` with every number, `report.html` for people, `curve.svg` with the plot.

    write_report(folder, report)

No scripts and nothing from elsewhere, so that it can be archived and printed as it is. It holds numbers and ids of users who
decided, and no text of a record.
"""

import json
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from medloop import plots
from medloop.contracts.experiment import Estimate, ExperimentReport
from medloop.store.files.atomic import atomic_write, make_folder

OUTCOMES = {
    "better": "The challenger is better · 挑战者更好",
    "not_better": "The challenger is not better · 挑战者没有更好",
    "guard_stop": "A guard stopped the experiment · 安全护栏已停止实验",
    "no_evidence": "No evidence by the planned end · 到计划终点仍无证据",
    "invalid": "The split is broken, nothing can be concluded · 分流异常，无法得出结论",
}


@cache
def _templates() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"interval": interval}
    return environment


def write_report(folder: Path, report: ExperimentReport) -> Path:
    """The files of a report; an older report in the same place is replaced."""
    make_folder(folder)
    content = report.model_dump(mode="json", exclude_none=True)
    atomic_write(folder / "report.json", json.dumps(content, ensure_ascii=False, indent=2, sort_keys=True))
    atomic_write(folder / "report.html", report_page(report))
    if report.curve:
        atomic_write(folder / "curve.svg", plots.standalone(curve_plot(report)))
    return folder


def report_page(report: ExperimentReport) -> str:
    return _templates().get_template("experiment.html").render(
        report=report, plan=report.plan, outcomes=OUTCOMES, plot=Markup(curve_plot(report)) if report.curve else None,
        rows=(report.primary, *report.others), guard_alpha=sum(rule.alpha for rule in report.plan.guards),
    )  # fmt: skip


def curve_plot(report: ExperimentReport, *, title: str = "", about: str = "") -> str:
    """The difference with its interval over the number of users; the wide band of the beginning is cut off at the edge."""
    last = report.curve[-1]
    edge = max(2.5 * (last.high - last.low), 2 * report.plan.min_effect)

    def cut(value: float) -> float:
        return min(max(value, -edge), edge)

    points = [(float(point.users), cut(point.difference), cut(point.low), cut(point.high)) for point in report.curve]
    name = title or f"{report.plan.primary}: challenger minus champion, by users"
    return plots.band(points, title=name, marks=(report.plan.min_effect,), about=about or interval(report.primary))


def interval(row: Estimate) -> str:
    """`+0.042 (+0.010 to +0.074)`."""
    if row.difference is None or row.low is None or row.high is None:
        return "too few users · 用户太少"
    return f"{row.difference:+.3f} ({row.low:+.3f} to {row.high:+.3f})"
