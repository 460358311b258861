"""Datasets by a filter: the way from traces to the newest dataset as a graph, and a filter over the feedback with its count.

The count follows every change of the form (static/filter.js); without scripts the button counts. No text is shown.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import yaml
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from markupsafe import Markup
from pydantic import ValidationError

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.api.task_jobs import place_of
from medloop.contracts.record_filter import KNOWN_VALUES, FilterTree, is_number
from medloop.data.feedback.build import FeedbackConfig
from medloop.data.feedback.filter_records import count_fitting
from medloop.diagram import Box, Line, draw
from medloop.errors import InputError
from medloop.jobs.submit import submit_build
from medloop.knobs import problem_text
from medloop.store import catalog
from medloop.store.db import Store
from medloop.store.records.data_flow import count_flow
from medloop.store.records.users import ROLES
from medloop.web.gate_words import GateWords
from medloop.web.render import Figure, FormFields, redirect, show, translator_of
from medloop.web.told import told
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
VALUES = {**KNOWN_VALUES, "role": ROLES}
NAME = re.compile(r"join|j[12]|[ftv][12][1-3]")  # a field of the form


@router.get("/filter")
def filter_page(request: Request, caller: DataEngineer) -> Response:
    """The page; with `part=count` only the count, which the page asks for while its form changes."""
    t, store, given = translator_of(request), store_of(request), dict(request.query_params)
    tree, problem = _tree(given, t)
    if tree is not None:
        check_rate(request, caller)
    counts = count_fitting(store, tree, actor=caller.user_id) if tree is not None else None
    text = yaml.safe_dump(tree.model_dump(exclude_none=True, mode="json"), allow_unicode=True, sort_keys=False) if tree else ""
    sent = {name: value for name, value in given.items() if NAME.fullmatch(name)}
    context: dict[str, Any] = {"counts": counts, "tree": text, "problem": problem, "sent": sent, "word": _word}
    if given.get("part") == "count":
        return show(request, caller, "filter_count.html", **context)
    options: dict[str, Any] = {
        "fields": FIELDS,
        "tests": TESTS,
        "joins": JOINS,
        "groups": range(1, GROUPS + 1),
        "rows": range(1, ROWS + 1),
    }
    return show(request, caller, "filter.html", figure=_flow(store, t), given=given, words=VALUES, **options, **context)


@router.post("/filter/build")
def build_filtered(request: Request, caller: DataEngineer, form: FormFields) -> Response:
    """Queue the build of a dataset from what fits, as `medloop data build --name filtered --filter` does."""
    check_rate(request, caller)
    store, t = store_of(request), translator_of(request)
    tree, problem = _tree(form, t)
    if tree is None:
        raise InputError(problem.text if problem else "The filter has no condition", "Choose a field and a value")
    with place_of(request, caller, "BUILD"):
        job_id = submit_build(
            FeedbackConfig(name="filtered", filter=tree), store.settings, seed=store.settings.seed, actor=caller.user_id
        )
    return redirect(f"/web/filter?queued={job_id}")


def _word(field: str, value: str, t: Translator) -> str:
    """A value in the reader's words; what somebody made up stays."""
    keys = {"language": "in_language_", "role": "role_", "consent": "consent_", "stratum": "trust_stratum_"}
    return t.or_plain(keys.get(field, "filter_value_") + value, value)


def _tree(given: Mapping[str, str], t: Translator) -> tuple[FilterTree | None, GateWords | None]:
    """The tree that the form says; None where it says nothing, and what is wrong with it."""
    groups = []
    for group in range(1, GROUPS + 1):
        parts = [part for row in range(1, ROWS + 1) if (part := _condition(given, f"{group}{row}")) is not None]
        if parts:
            groups.append({_join(given.get(f"j{group}")): parts})
    if not groups:
        return None, None
    try:
        return FilterTree.model_validate(groups[0] if len(groups) == 1 else {_join(given.get("join")): groups}), None
    except ValidationError as error:
        sentence = problem_text(error.errors()[0])
        return None, told(sentence[0].upper() + sentence[1:] + ".", t)


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
    return Figure(title, plot, caption, (t("filter_step"), t("filter_number")), rows, wide=True)
