"""Datasets, evaluations and releases: lists of what the loop has made, and one evaluation or release in numbers. No texts."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import ValidationError

from medloop.api.deps import store_of
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.contracts.evaluation import EvalReport, Interval
from medloop.contracts.release import SafetyLedger
from medloop.store import catalog
from medloop.store.catalog import CatalogEntry
from medloop.store.db import Store
from medloop.store.records.lineage_rows import count_by_hash
from medloop.web.lists import address, chosen
from medloop.web.people import People
from medloop.web.render import show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

READERS = ("clinician", "engineer", "auditor", "admin")
DataReader = Annotated[Caller, Depends(allow(*READERS, scope="data"))]
EvaluationReader = Annotated[Caller, Depends(allow(*READERS, scope="gate"))]
ReleaseReader = Annotated[Caller, Depends(allow(*READERS, scope="registry"))]
RewardReader = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="jobs"))]
ShortText = Annotated[str, Query(max_length=200)]
Before = Annotated[int | None, Query(ge=1, lt=2**63)]
KINDS = {
    "datasets": ("feedback", "dataset", "source", "prompts"),
    "evaluations": ("evaluation",),
    "releases": ("release",),
    "reward_models": ("reward model",),
}
PAGE_SIZE = 50
LEDGER = "safety_ledger.json"


@router.get("/datasets")
def datasets_page(
    request: Request, caller: DataReader, q: ShortText = "", kind: ShortText = "", order: ShortText = "", before: Before = None
) -> Response:
    return _list(request, caller, "datasets", q, chosen(kind, KINDS["datasets"]), order, before)


@router.get("/evaluations")
def evaluations_page(
    request: Request, caller: EvaluationReader, q: ShortText = "", order: ShortText = "", before: Before = None
) -> Response:
    return _list(request, caller, "evaluations", q, "", order, before)


@router.get("/releases")
def releases_page(
    request: Request, caller: ReleaseReader, q: ShortText = "", order: ShortText = "", before: Before = None
) -> Response:
    return _list(request, caller, "releases", q, "", order, before)


@router.get("/reward_models")
def reward_models_page(
    request: Request, caller: RewardReader, q: ShortText = "", order: ShortText = "", before: Before = None
) -> Response:
    return _list(request, caller, "reward_models", q, "", order, before)


@router.get("/evaluations/{sha256}")
def evaluation_page(request: Request, caller: EvaluationReader, sha256: str) -> Response:
    store = store_of(request)
    entry = _entry(store, sha256, "evaluations")
    report = _report(entry)
    regressions = [row for row in (*report.differences, *report.stratum_differences) if row.verdict == "worse"] if report else []
    context: dict[str, Any] = {
        "entry": entry, "report": report, "regressions": regressions, "number": _number,
        "splits": list(dict.fromkeys(split for result in report.results for split in result.metrics)) if report else [],
    }  # fmt: skip
    return show(request, caller, "evaluation.html", **context)


@router.get("/releases/{sha256}")
def release_page(request: Request, caller: ReleaseReader, sha256: str) -> Response:
    store = store_of(request)
    entry = _entry(store, sha256, "releases")
    try:
        ledger = SafetyLedger.from_json((entry.path / LEDGER).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        ledger = None
    context: dict[str, Any] = {"entry": entry, "ledger": ledger, "number": _number, "who": People(store, translator_of(request))}
    return show(request, caller, "release.html", **context)


def _list(request: Request, caller: Caller, page: str, q: str, kind: str, order: str, before: int | None) -> Response:
    store = store_of(request)
    fields = {"q": " ".join(q.split()), "kind": kind, "order": chosen(order, ("oldest",))}
    kinds = (kind,) if kind else KINDS[page]
    oldest = bool(fields["order"])
    rows = catalog.page(store, kinds, find=fields["q"], beyond=before, limit=PAGE_SIZE + 1, oldest_first=oldest)
    shown = rows[:PAGE_SIZE]
    with store.read() as conn:
        records = count_by_hash(conn, {row.entry.sha256 for row in shown}) if page == "datasets" else {}
    path = f"/web/{page}"
    context: dict[str, Any] = {
        "page": page, "rows": shown, "records": records, "fields": fields, "kinds": KINDS[page],
        "total": catalog.count(store, kinds),
        "more": address(path, **fields, before=shown[-1].row) if len(rows) > PAGE_SIZE else "",
        "first": address(path, **fields) if before else "",
        "turned": address(path, **{**fields, "order": "" if oldest else "oldest"}),
        "filtered": bool(fields["q"] or kind), "accuracy": _accuracy,
    }  # fmt: skip
    return show(request, caller, "datasets.html", **context)


def _entry(store: Store, sha256: str, page: str) -> CatalogEntry:
    entry = catalog.find(store, sha256 if sha256.startswith("sha256:") else f"sha256:{sha256}")
    if entry is None or entry.kind not in KINDS[page]:
        raise NotFoundError("There is no such entry")
    return entry


def _report(entry: CatalogEntry) -> EvalReport | None:
    """The report behind an entry; None if the file is gone or has other content now."""
    try:
        report = EvalReport.from_json(entry.path.read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None
    return report if report.content_id() == entry.sha256 else None


def _accuracy(entry: CatalogEntry) -> str:
    """The share of held-out pairs that a reward model ranks as people did, as its trainer measured it."""
    metrics = entry.card.get("metrics", {})
    names = ("test_accuracy", "test_accuracy_low", "test_accuracy_high")
    mean, low, high = (metrics.get(name) for name in names)
    return _number(None if mean is None else Interval(mean=mean, low=low, high=high, n=int(metrics.get("test_pairs", 0))))


def _number(value: Interval | None) -> str:
    """`0.620 [0.550, 0.700], n = 40`."""
    if value is None or value.mean is None:
        return "–"
    bounds = "" if value.low is None or value.high is None else f" [{value.low:.3f}, {value.high:.3f}]"
    return f"{value.mean:.3f}{bounds}, n\u00a0=\u00a0{value.n:,}"
