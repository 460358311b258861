"""Can the reward be trusted? Each judge against people's labels, as intervals, on all cases and by slice. Numbers only."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from markupsafe import Markup

from medloop import plots
from medloop.api.deps import settings_of
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.contracts.validity import (
    ALL,
    MIX,
    URGENCY,
    Quantity,
    Validity,
    ValidityCard,
    judge_name,
    keeps_bound,
    left_out_lines,
)
from medloop.feedback.insight import alerts
from medloop.loop.judge_drift import read_record
from medloop.loop.trust import cards
from medloop.reward.trust import bundled_cases, rows_of
from medloop.settings import Settings
from medloop.web.render import Figure, show, translator_of
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

TrustReader = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="jobs"))]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)


@dataclass(frozen=True)
class JudgeLine:
    """One judge in the table: its verdict and what was measured, in the reader's words, with whether it is below its bound."""

    judge: str
    name: str
    verdict: str
    measured: list[tuple[str, bool]]
    version: str
    since: str = ""


@router.get("/trust")
def trust_page(
    request: Request,
    caller: TrustReader,
    version: Annotated[str, Query(max_length=120)] = "",
    judge: Annotated[str, Query(max_length=80)] = "",
) -> Response:
    """The newest card, or that of a version; with `judge` also that judge by language, stratum, specialty and source."""
    t, settings = translator_of(request), settings_of(request)
    every = cards(settings)
    card = next((card for card in every if not version or card.reward_version == version), None)
    if version and card is None:
        raise NotFoundError("There is no card of this version")
    context: dict[str, Any] = {"card": card, "cards": every, "judge": judge, "figures": [], "wrong": []}
    if card is not None:
        context |= {"lines": _lines(card, t), "alerts": _alerts(card, settings, t), "drift": _drift(card, settings, t)}
        context["sources"] = [f"{_source(name, t)} {count:,}" for name, count in card.sources.items()]
        context["left_out"] = left_out_lines(card.left_out, t.language)
        context["answer"], context["is_refused"] = _answer(card, t)
        context["read"], context["read_before"] = _read(card, t)
        texts = {(case.id, case.source): case for case in bundled_cases()} if judge and card.wrong else {}
        wrong = [row for row in card.wrong if row.judge == judge]
        context["wrong"] = [(row, _source(row.source, t), texts.get((row.case, row.source))) for row in wrong]
        draw = partial(_by_slice, card, judge, t=t) if judge else partial(_overall, card, t=t)
        context["figures"] = [figure for quantity in QUANTITIES if (figure := draw(quantity)) is not None]
    return show(request, caller, "trust.html", **context)


def _lines(card: ValidityCard, t: Translator) -> list[JudgeLine]:
    measures: dict[str, list[tuple[str, bool]]] = {}
    for row in card.measures:
        value = row.value
        if row.slice == ALL and value.mean is not None and value.low is not None and value.high is not None:
            numbers = t("trust_measured", value=f"{value.mean:.2f}", low=f"{value.low:.2f}", high=f"{value.high:.2f}", n=value.n)
            is_below = value.n >= card.min_cases and not keeps_bound(row.quantity, value, card.bounds[row.quantity])
            measures.setdefault(row.judge, []).append((f"{t(f'trust_{row.quantity}')} {numbers}", is_below))
    since = {row.judge: t("trust_since", day=t.day(row.since.date())) for row in card.judges if row.since}
    return [
        JudgeLine(judge, judge_name(judge, t.language), verdict, measures.get(judge, []), version, since.get(judge, ""))
        for judge, verdict, _, version in rows_of(card)
    ]


ReadRow = tuple[str, str, str, str]


def _read(card: ValidityCard, t: Translator) -> tuple[list[ReadRow], list[ReadRow]]:
    """What readers made of verdicts on real text: part, right of read, who read, and whether it was this version.

    The newest reading of each part, and the earlier ones, newest first.
    """
    versions = {row.judge: row.version for row in card.judges}
    newest: dict[str, ReadRow] = {}
    earlier: list[ReadRow] = []
    for row in reversed(card.read):
        line = (
            judge_name(row.judge, t.language),
            t("trust_read_counts", right=row.right, arguable=row.arguable, n=row.read),
            t(f"trust_read_{row.reader}"),
            t("trust_read_now" if versions.get(row.judge) == row.version else "trust_read_earlier"),
        )
        if row.judge in newest:
            earlier.append(line)
        else:
            newest[row.judge] = line
    return list(newest.values()), earlier


def _answer(card: ValidityCard, t: Translator) -> tuple[str, bool]:
    """What training would do with this reward, and whether it refuses it; of bundled cases only the whole reward counts."""
    judged = [row for row in card.judges if row.judge != URGENCY and (not card.bundled or row.judge == MIX)]
    names = [judge_name(row.judge, t.language) for row in judged if row.verdict == "untrusted"]
    if names:
        return t("trust_refused", names=t("list_comma").join(names)), True
    is_shown = any(row.judge == MIX and row.verdict == "trusted" for row in judged) and not card.bundled
    return t("trust_accepted" if is_shown else "trust_unproven"), False


def _alerts(card: ValidityCard, settings: Settings, t: Translator) -> list[str]:
    """What drifts in this reward, as on the dashboard."""
    mine = [alert for alert in alerts.standing_alerts(settings.workspace) if alert.values.get("reward") == card.reward_version]
    sentences = (alerts.sentence(alert, t.language) for alert in mine)
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def _drift(card: ValidityCard, settings: Settings, t: Translator) -> str:
    """When somebody, or the server itself, last looked for drift."""
    record = read_record(settings, card.reward_version)
    if record is None:
        return t("trust_never_checked")
    if record.problem:
        return t(f"trust_problem_{record.problem}")
    return t("trust_checked", time=t.time(record.checked), n=f"{record.exchanges:,}")


def _source(name: str, t: Translator) -> str:
    return t.or_plain("trust_source_" + re.sub(r"\W+", "_", name), name)


def _slice(where: str, t: Translator) -> str:
    kind, _, name = where.partition("=")
    if kind == "language":
        return t.or_plain(f"in_language_{name}", name)
    if kind == "source":
        return t("trust_from", source=_source(name, t))
    return t.or_plain(f"trust_stratum_{name}", name) if kind == "stratum" else name or t("trust_all")


def _overall(card: ValidityCard, quantity: Quantity, t: Translator) -> Figure | None:
    rows = [row for row in card.measures if row.slice == ALL and row.quantity == quantity]
    return _figure([(judge_name(row.judge, t.language), row) for row in rows], quantity, card, t("trust_judge"), t)


def _by_slice(card: ValidityCard, judge: str, quantity: Quantity, t: Translator) -> Figure | None:
    """All cases first, then languages, specialties, sources and strata."""
    rows = [row for row in card.measures if row.judge == judge and row.quantity == quantity]
    rows.sort(key=lambda row: (row.slice != ALL, row.slice))
    return _figure([(_slice(row.slice, t), row) for row in rows], quantity, card, t("trust_slice"), t)


def _figure(
    named: Sequence[tuple[str, Validity]], quantity: Quantity, card: ValidityCard, first: str, t: Translator
) -> Figure | None:
    spans: dict[str, tuple[float, float, float]] = {}
    rows = []
    for name, row in named:
        value = row.value
        if value.mean is None or value.low is None or value.high is None:
            continue
        label = f"{name} ({row.slice.partition('=')[0]})" if name in spans else name  # a specialty may have the name of a source
        spans[label] = (value.mean, value.low, value.high)
        numbers = (f"{number:.2f}" for number in spans[label])
        rows.append((label, *numbers, str(value.n), str(row.ties), str(value.missing)))
    if not spans:
        return None
    title = t(f"trust_{quantity}")
    about = t("list_comma").join(f"{name} {span[0]:.2f}" for name, span in spans.items())
    svg = Markup(plots.spans(spans, title=title, low=0.0, high=1.0, mark=card.bounds[quantity], about=about))
    head = (first, *(t(f"trust_{name}") for name in ("value", "low", "high", "cases", "ties", "missing")))
    return Figure(title, svg, t(f"trust_{quantity}_hint"), head, rows)
