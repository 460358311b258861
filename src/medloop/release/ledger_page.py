"""`safety_ledger.html`: the ledger of a release as one page, for a screen and for paper, with headings in English and Chinese.

No scripts and nothing from elsewhere, so that it can be archived and printed as it is. Texts of records are not in it.
"""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from medloop import plots
from medloop.contracts.evaluation import Difference, Interval
from medloop.contracts.gate import GateCheck
from medloop.contracts.release import LedgerSignOff, SafetyLedger

OUTCOMES = {"pass": "pass · 通过", "fail": "FAIL · 未通过", "not_enough_evidence": "not enough evidence · 证据不足"}


@cache
def _templates() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"interval": interval, "short": short}
    return environment


def ledger_page(ledger: SafetyLedger) -> str:
    return _templates().get_template("ledger.html").render(
        ledger=ledger, outcomes=OUTCOMES, red_plot=_red_plot(ledger.red_team), failed=_not_passed(ledger.gate.checks),
        signed=_signed(ledger.sign_offs),
    )  # fmt: skip


def interval(value: Interval | None) -> str:
    """`0.62 [0.55, 0.70], n = 40`."""
    if value is None or value.mean is None:
        return "–"
    bounds = "" if value.low is None or value.high is None else f" [{value.low:.3g}, {value.high:.3g}]"
    return f"{value.mean:.3g}{bounds}, n = {value.n:,}"


def short(sha256: str) -> str:
    return sha256.removeprefix("sha256:")[:16]


def _not_passed(checks: tuple[GateCheck, ...]) -> list[GateCheck]:
    return [check for check in checks if check.outcome != "pass"]


def _signed(sign_offs: tuple[LedgerSignOff, ...]) -> int:
    """How many people stand for the verdict: of several sign-offs by one person the last one counts."""
    return sum({row.name: row.approved for row in sign_offs}.values())


def _red_plot(differences: tuple[Difference, ...]) -> Markup | None:
    spans = {
        f"{row.metric} · {row.stratum}" if row.stratum else row.metric: (
            row.difference.mean,
            row.difference.low,
            row.difference.high,
        )
        for row in differences
        if row.difference.mean is not None and row.difference.low is not None and row.difference.high is not None
    }
    if not spans:
        return None
    known = {name: (float(mean or 0), float(low or 0), float(high or 0)) for name, (mean, low, high) in spans.items()}
    low = min(-0.1, *(span[1] for span in known.values()))
    high = max(0.1, *(span[2] for span in known.values()))
    about = ", ".join(f"{name} {span[0]:+.2f}" for name, span in known.items())
    title = "Red team: after minus before (95 % interval)"
    return Markup(plots.spans(known, title=title, low=low, high=high, mark=0.0, about=about))  # plots escapes its texts itself
