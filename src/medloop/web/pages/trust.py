"""Can the reward be trusted? Each judge against people's labels, as intervals, on all cases and by slice. Numbers only."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from markupsafe import Markup

from medloop import plots
from medloop.api.deps import settings_of
from medloop.api.policy import Caller, allow
from medloop.contracts.validity import ALL, Quantity, Validity, ValidityCard
from medloop.loop.trust import cards
from medloop.web.render import Figure, show, translator_of
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

TrustReader = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="jobs"))]
QUANTITIES: tuple[Quantity, ...] = ("recall", "precision", "agreement")


@router.get("/trust")
def trust_page(
    request: Request,
    caller: TrustReader,
    version: Annotated[str, Query(max_length=80)] = "",
    judge: Annotated[str, Query(max_length=80)] = "",
) -> Response:
    """The newest card, or that of a version; with `judge` also that judge by language, stratum and source."""
    t, every = translator_of(request), cards(settings_of(request))
    card = next((card for card in every if not version or card.reward_version == version), None)
    figures: list[Figure] = []
    if card is not None:
        figures = [figure for quantity in QUANTITIES if (figure := _overall(card, quantity, t)) is not None]
        if judge:
            figures = [figure for quantity in QUANTITIES if (figure := _by_slice(card, judge, quantity, t)) is not None]
    return show(request, caller, "trust.html", card=card, cards=every, figures=figures, judge=judge)


def _overall(card: ValidityCard, quantity: Quantity, t: Translator) -> Figure | None:
    rows = [row for row in card.measures if row.slice == ALL and row.quantity == quantity]
    return _figure([(row.judge, row) for row in rows], quantity, card, t)


def _by_slice(card: ValidityCard, judge: str, quantity: Quantity, t: Translator) -> Figure | None:
    rows = [row for row in card.measures if row.judge == judge and row.quantity == quantity]
    return _figure(
        [(t("trust_all") if row.slice == ALL else row.slice.partition("=")[2], row) for row in rows], quantity, card, t
    )


def _figure(named: Sequence[tuple[str, Validity]], quantity: Quantity, card: ValidityCard, t: Translator) -> Figure | None:
    spans = {}
    for name, row in named:
        value = row.value
        if value.mean is not None and value.low is not None and value.high is not None:
            spans[name] = (value.mean, value.low, value.high)
    if not spans:
        return None
    rows = [
        (name, *(f"{number:.2f}" for number in spans[name]), str(row.value.n), str(row.ties), str(row.value.missing))
        for name, row in named
        if name in spans
    ]
    title = t(f"trust_{quantity}")
    about = t("list_comma").join(f"{name} {span[0]:.2f}" for name, span in spans.items())
    svg = Markup(plots.spans(spans, title=title, low=0.0, high=1.0, mark=card.bounds[quantity], about=about))
    head = (
        t("trust_judge"),
        t("trust_value"),
        t("trust_low"),
        t("trust_high"),
        t("trust_cases"),
        t("trust_ties"),
        t("trust_missing"),
    )
    return Figure(title, svg, t(f"trust_{quantity}_hint"), head, rows)
