"""Datasets by a filter: the way from traces to the newest dataset as a graph, and a filter over the feedback with its count.

The count follows every change of the form (static/filter.js); without scripts the button counts. No text is shown.
"""

from collections.abc import Mapping
from typing import Annotated, Any, get_args

import yaml
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from markupsafe import Markup
from pydantic import ValidationError

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.contracts.dataset import Stratum
from medloop.contracts.record_filter import FilterTree, is_number
from medloop.data.feedback.filter_records import count_fitting
from medloop.diagram import Box, Line, draw
from medloop.store import catalog
from medloop.store.db import Store
from medloop.store.records.data_flow import count_flow
from medloop.web.render import Figure, show, translator_of
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

DataEngineer = Annotated[Caller, Depends(allow("engineer", scope="data"))]
FIELDS = (
    "kind", "stars", "liked", "critical", "reward", "axis.safety", "stratum", "language", "rater", "role", "version", "agent",
    "day", "consent",
)  # fmt: skip
TESTS = ("equals", "at_least", "at_most")
JOINS = ("all", "any", "none")
GROUPS, ROWS = 2, 3
WORDS = ("rating", "choice", "correction", "yes", "no", *get_args(Stratum), "zh", "en")


@router.get("/filter")
def filter_page(request: Request, caller: DataEngineer) -> Response:
    """The page; with `part=count` only the count, which the page asks for while its form changes."""
    t, store, given = translator_of(request), store_of(request), dict(request.query_params)
    tree, problem = _tree(given)
    if tree is not None:
        check_rate(request, caller)
    counts = count_fitting(store, tree, actor=caller.user_id) if tree is not None else None
    text = yaml.safe_dump(tree.model_dump(exclude_none=True, mode="json"), allow_unicode=True, sort_keys=False) if tree else ""
    context: dict[str, Any] = {"counts": counts, "tree": text, "problem": problem}
    if given.get("part") == "count":
        return show(request, caller, "filter_count.html", **context)
    options: dict[str, Any] = {
        "fields": FIELDS,
        "tests": TESTS,
        "joins": JOINS,
        "groups": range(1, GROUPS + 1),
        "rows": range(1, ROWS + 1),
    }
    return show(request, caller, "filter.html", figure=_flow(store, t), given=given, words=WORDS, **options, **context)


def _tree(given: Mapping[str, str]) -> tuple[FilterTree | None, bool]:
    """The tree that the form says; None where it says nothing, and whether it means nothing."""
    groups = []
    for group in range(1, GROUPS + 1):
        parts = [part for row in range(1, ROWS + 1) if (part := _condition(given, f"{group}{row}")) is not None]
        if parts:
            groups.append({_join(given.get(f"j{group}")): parts})
    if not groups:
        return None, False
    try:
        return FilterTree.model_validate(groups[0] if len(groups) == 1 else {_join(given.get("join")): groups}), False
    except ValidationError:
        return None, True


def _join(value: str | None) -> str:
    return value if value in JOINS else "all"


def _condition(given: Mapping[str, str], place: str) -> dict[str, Any] | None:
    field, test, value = (given.get(f"{name}{place}", "").strip()[:200] for name in ("f", "t", "v"))
    if field not in FIELDS or not value:
        return None
    return {"field": field, test if test in TESTS else "equals": _number(value) if is_number(field) else value}


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def _flow(store: Store, t: Translator) -> Figure:
    """From traces to the files of the newest dataset, with how many on each line."""
    logged, kinds = count_flow(store)
    newest = catalog.newest(store, "feedback")
    card = newest.card if newest else {}
    boxes = [Box("traces", 0, t("filter_traces"), f"{logged:,}"), Box("loose", 0, t("filter_no_trace"), colour=2)]
    edges: list[tuple[str, str, int]] = []
    for name, (about, other) in kinds.items():
        boxes.append(Box(name, 1, t(f"filter_{name}"), f"{about + other:,}", colour=1))
        edges += [("traces", name, about), ("loose", name, other)]
        for status, n in (card.get("records", {}).get(name) or {}).items():
            edges.append((name, "used" if status == "used" else "unused", n))
    if newest is not None:
        boxes += [Box("used", 2, t("filter_used"), colour=3), Box("unused", 2, t("filter_unused"), colour=2, dashed=True)]
        for file, entry in card.get("files", {}).items():
            if file.endswith(".jsonl") and file != "dropped.jsonl":
                boxes.append(Box(file, 3, file, f"{entry['rows']:,}", href="/web/datasets", colour=4))
                edges.append(("used", file, int(entry["rows"])))
    summed: dict[tuple[str, str], int] = {}
    for source, target, n in edges:
        summed[source, target] = summed.get((source, target), 0) + n
    lines = [Line(source, target, f"{n:,}") for (source, target), n in summed.items() if n]
    labels = {box.id: box.label for box in boxes}
    rows = [(f"{labels[source]} → {labels[target]}", f"{n:,}") for (source, target), n in summed.items()]
    title = t("filter_flow")
    plot = Markup(draw(boxes, lines, title=title))  # labels are escaped by draw
    caption = t("filter_flow_of", name=newest.path.name) if newest else t("filter_flow_none")
    return Figure(title, plot, caption, (t("filter_step"), t("filter_number")), rows)
