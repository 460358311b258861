"""My history: what somebody sent, in a few words, and how it was used."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, NotFoundError, allow
from medloop.contracts import Correction, CorrectionCriterion, Feedback, Preference
from medloop.contracts.base import Timestamp
from medloop.contracts.feedback import FAULT_AXES
from medloop.errors import MedloopError
from medloop.loop.codebook_effects import Taught, taught_by
from medloop.loop.taught import answer_now, outcome_of
from medloop.store.records.criteria import list_criteria
from medloop.store.records.history import OwnRecord, own_record, own_records
from medloop.store.records.withdrawals import is_withdrawn
from medloop.web.people import skills_of
from medloop.web.render import FormFields, show, translator_of
from medloop.web.review.flow import saved_notice
from medloop.web.review.targets import PAGE_OF
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

Rater = Annotated[Caller, Depends(allow("clinician", "annotator", scope="feedback:read", sites=True))]
PAGE_SIZE = 20


@dataclass(frozen=True)
class HistoryEntry:
    kind: str
    page: str
    record_id: str
    timestamp: datetime
    question: str
    verdict: list[str]
    fate: str
    status: str
    incident: str | None
    taught: Taught | None = None
    criteria: int = 0  # accepted ones
    drafts: int = 0


@router.get("/history")
def history_page(request: Request, caller: Rater, before: Timestamp | None = None) -> Response:
    records = own_records(store_of(request), caller.user_id, site=caller.site, before=before, limit=PAGE_SIZE)
    older = records[-1].timestamp.isoformat() if len(records) == PAGE_SIZE else ""
    corrections = [record.record_id for record in records if record.kind == "correction"]
    taught = taught_by(store_of(request), corrections) if corrections else {}
    counts = Counter((row.correction_id, row.state) for row in _criteria_of(request, corrections))
    entries = [
        replace(
            _entry(record, translator_of(request)), taught=taught.get(record.record_id),
            criteria=counts[record.record_id, "accepted"], drafts=counts[record.record_id, "draft"],
        )
        for record in records
    ]  # fmt: skip
    skill = skills_of(request).last().get(caller.user_id)
    context: dict[str, Any] = {"entries": entries, "older": older, "paged": before is not None, "skill": skill}
    return show(request, caller, "history.html", saved=saved_notice(request, caller), **context)


@router.get("/history/{record}")
def taught_page(request: Request, caller: Rater, record: str) -> Response:
    return _taught(request, caller, record)


@router.post("/history/{record}/ask")
def ask_now(request: Request, caller: Rater, record: str, form: FormFields) -> Response:
    """What the live model answers to the corrected question now."""
    check_rate(request, caller)
    store = store_of(request)
    if is_withdrawn(store, record):
        return _taught(request, caller, record, 409)
    try:
        now = answer_now(store.settings, store, _own(request, caller, record))
    except MedloopError as error:
        if isinstance(error, NotFoundError):
            raise
        return _taught(request, caller, record, 422, problem=str(error))
    return _taught(request, caller, record, now=now)


def _taught(request: Request, caller: Caller, record: str, code: int = 200, **more: Any) -> Response:
    correction, store = _own(request, caller, record), store_of(request)
    context: dict[str, Any] = {
        "correction": correction, "became": outcome_of(store, record, sender=caller.user_id), "now": None, "problem": "",
        "taken_back": is_withdrawn(store, record),
    }  # fmt: skip
    return show(request, caller, "taught.html", code, **(context | more))


def _own(request: Request, caller: Caller, record: str) -> Correction:
    found = own_record(store_of(request), caller.user_id, "correction", record, site=caller.site)
    if not isinstance(found, Correction):
        raise NotFoundError("You have sent no such correction")
    return found


def _criteria_of(request: Request, corrections: list[str]) -> list[CorrectionCriterion]:
    return list_criteria(store_of(request), correction_ids=corrections) if corrections else []


def _entry(own: OwnRecord, t: Translator) -> HistoryEntry:
    question = own.record.user_query if isinstance(own.record, Feedback) else own.record.prompt
    status = t("fate_dataset", name=", ".join(own.datasets)) if own.fate == "dataset" else t(f"fate_{own.fate}")
    verdict = _verdict(own.record, t)
    return HistoryEntry(
        own.kind, PAGE_OF[own.kind], own.record_id, own.timestamp, question, verdict, own.fate, status, own.incident
    )


def _axis(name: str, stars: int, t: Translator) -> str:
    """A fault that was ticked is its name alone."""
    words = t.or_plain(f"axis_{name}", name)
    return words if name in FAULT_AXES and stars == 1 else f"{words} {stars}"


def _verdict(record: Feedback | Preference | Correction, t: Translator) -> list[str]:
    if isinstance(record, Correction):
        return [t("verdict_corrected")]
    if isinstance(record, Preference):
        place = "first" if record.preferred == (record.shown_first or "a") else "second"
        verdict = [t(f"verdict_{place if record.preferred in ('a', 'b') else record.preferred}")]
    else:
        verdict = [t(f"verdict_thumb_{record.thumb}")] if record.thumb else []
        verdict += [t("verdict_stars", n=record.rating)] if record.rating else []
        verdict += [_axis(name, stars, t) for name, stars in record.axes.items()]
    verdict += [t("verdict_critical")] if record.critical else []
    return verdict + ([t("verdict_comment")] if record.comments else [])
