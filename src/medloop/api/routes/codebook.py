"""`/api/v1/codebook`: rules that correct the assistant at once. A proposal is tried with the live model before it goes live.

Who may approve and retire is checked in store/records/codebook.py, in the transaction of the change.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, allow
from medloop.api.routes.feedback import REFUSED
from medloop.codebook.lay_words import topics_of
from medloop.contracts import CodebookEntry, CodebookTrial
from medloop.contracts.base import Timestamp
from medloop.contracts.rule import EVERY_SITE, MOST_RULE, MOST_SENTENCE, EntryState, ForbiddenAct
from medloop.loop import codebook as work
from medloop.loop.codebook_effects import count_votes
from medloop.loop.codebook_growth import promote as promote_entry
from medloop.loop.codebook_growth import propose_examples, propose_prompt
from medloop.loop.codebook_trial import approve_entry, try_entry
from medloop.loop.rule_encoder import rule_encoder
from medloop.store.records import codebook, codebook_votes
from medloop.store.records.codebook import APPROVERS, MOST_REASON, PROPOSERS, RETIRERS

router = APIRouter(prefix="/api/v1/codebook", tags=["codebook"])

Json = dict[str, Any]
READERS = ("clinician", "annotator", "engineer", "auditor", "admin")
QUESTION_READERS = ("clinician", "annotator", "engineer")  # the others read no patient's words, not even scrubbed ones
CodebookReader = Annotated[Caller, Depends(allow(*READERS, scope="codebook"))]
CodebookProposer = Annotated[Caller, Depends(allow(*PROPOSERS, scope="codebook"))]
CodebookApprover = Annotated[Caller, Depends(allow(*APPROVERS, scope="codebook"))]
CodebookRetirer = Annotated[Caller, Depends(allow(*RETIRERS, scope="codebook"))]
EntryId = Annotated[str, InPath(min_length=6, max_length=80)]
ERRORS: dict[int | str, Json] = {code: REFUSED[code] for code in (401, 403, 422, 429, 503)}
Words = Annotated[str, Field(min_length=1, max_length=200)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProposeBody(_Body):
    """A correction to take the rule from, or a rule in your own words."""

    correction_id: str | None = Field(None, max_length=80)
    text: str | None = Field(None, min_length=1, max_length=MOST_RULE)
    triggers: tuple[Words, ...] = Field((), max_length=8)
    first_sentence: str = Field("", max_length=MOST_SENTENCE)
    forbids: tuple[ForbiddenAct, ...] = Field((), description="What is taken out of answers, sentence by sentence.")
    scope: str = Field("", max_length=40)
    site: str = Field(EVERY_SITE, max_length=32, description="The site whose answers it changes; all: those of every site.")
    expires: Timestamp | None = None


class EditBody(_Body):
    text: str | None = Field(None, min_length=1, max_length=4000)
    triggers: tuple[Words, ...] | None = Field(None, max_length=8)
    first_sentence: str | None = Field(None, max_length=MOST_SENTENCE)
    forbids: tuple[ForbiddenAct, ...] | None = None
    scope: str | None = Field(None, min_length=1, max_length=40)
    expires: Timestamp | None = None


class ReasonBody(_Body):
    reason: str = Field("", max_length=MOST_REASON)


class MergeBody(_Body):
    other: str = Field(min_length=6, max_length=80, description="The entry that the first one replaces.")


class RollbackBody(_Body):
    version: int = Field(ge=0)
    reason: str = Field(min_length=1, max_length=MOST_REASON)


@router.get("", responses=ERRORS)
def list_entries(request: Request, caller: CodebookReader, state: EntryState | None = None) -> Json:
    """The newest revision of every entry, with its counters; `version` and `sha256` are those of the live codebook."""
    store = store_of(request)
    current, counts = codebook.live(store), codebook_votes.counts(store)
    items = [as_json(entry, caller, counts.get(entry.entry_id)) for entry in codebook.entries(store, state=state)]
    return {"version": current.version, "sha256": current.sha256, "items": items}


@router.get("/versions", responses=ERRORS)
def list_versions(request: Request, caller: CodebookReader, limit: Annotated[int, Query(ge=1, le=500)] = 100) -> Json:
    """Every version of the codebook, newest first: what changed, who decided, why."""
    rows = codebook.versions(store_of(request), limit=limit)
    return {"items": [row.model_dump(mode="json", exclude_none=True) for row in rows]}


@router.get("/{entry}", responses=ERRORS)
def get_entry(entry: EntryId, request: Request, caller: CodebookReader) -> Json:
    """One entry with all its revisions and trials, and the live entries that contradict it."""
    store = store_of(request)
    found = codebook.get_entry(store, entry)
    history = codebook.revisions(store, found.entry_id)
    trials = [trial for revision in history for trial in codebook.trials(store, revision.revision_id)]
    return {
        **as_json(found, caller, codebook_votes.counts(store).get(found.entry_id)), "conflicts": work.conflicts_of(store, found),
        "revisions": [as_json(row, caller) for row in history], "trials": [trial_json(trial) for trial in trials],
    }  # fmt: skip


@router.post("", status_code=201, responses=ERRORS)
def propose(body: ProposeBody, request: Request, caller: CodebookProposer) -> Json:
    """Propose a rule. No answer changes before somebody approves it."""
    check_rate(request, caller)
    store = store_of(request)
    if body.text is None:
        embed = rule_encoder(store.settings)
        return as_json(work.propose_from(store, body.correction_id or "", actor=caller.user_id, embed=embed), caller)
    entry = work.written_entry(
        store, body.text, triggers=body.triggers, first_sentence=body.first_sentence, forbids=body.forbids,
        scope=body.scope, author=caller.user_id, actor=caller.user_id, expires=body.expires, site=body.site,
    )  # fmt: skip
    return as_json(entry, caller)


@router.post("/examples", status_code=201, responses=ERRORS)
def examples(request: Request, caller: CodebookProposer, most: Annotated[int, Query(ge=1, le=200)] = 20) -> Json:
    """Propose few-shot examples from corrected and liked answers; they are tried and approved like rules."""
    check_rate(request, caller)
    proposals = propose_examples(store_of(request), actor=caller.user_id, most=most)
    items = [as_json(entry, caller) for entry in proposals.entries]
    return {"items": items, "known": proposals.known, "unusable": proposals.unusable}


@router.post("/prompt", status_code=201, responses=ERRORS)
def prompt(request: Request, caller: CodebookProposer, site: Annotated[str, Query(max_length=32)] = EVERY_SITE) -> Json:
    """Propose a system prompt from the mistakes that experts corrected (at one site, if named); it is tried and approved like a
    rule."""
    check_rate(request, caller)
    return as_json(propose_prompt(store_of(request), actor=caller.user_id, author=caller.user_id, site=site), caller)


@router.post("/rollback", responses=ERRORS)
def rollback(body: RollbackBody, request: Request, caller: CodebookRetirer) -> Json:
    """The codebook as it was in an earlier version, as a new version; 0 is the empty one."""
    check_rate(request, caller)
    version = codebook.rollback(store_of(request), body.version, by=caller.user_id, reason=body.reason)
    return version.model_dump(mode="json", exclude_none=True)


@router.post("/{entry}/edit", status_code=201, responses=ERRORS)
def edit(entry: EntryId, body: EditBody, request: Request, caller: CodebookProposer) -> Json:
    """A new revision, which waits for approval; the live one stays until then."""
    check_rate(request, caller)
    store = store_of(request)
    changes = body.model_dump(exclude_none=True)
    found = codebook.get_entry(store, entry)
    return as_json(work.draft_edit(store, found, changes, actor=caller.user_id, author=caller.user_id), caller)


@router.post("/{entry}/merge", status_code=201, responses=ERRORS)
def merge(entry: EntryId, body: MergeBody, request: Request, caller: CodebookProposer) -> Json:
    """Propose one entry in place of two that say the same: the words of the first, the evidence of both."""
    check_rate(request, caller)
    store = store_of(request)
    first, second = codebook.get_entry(store, entry), codebook.get_entry(store, body.other)
    return as_json(work.merge_entries(store, first, second, actor=caller.user_id, author=caller.user_id), caller)


@router.post("/{entry}/promote", responses=ERRORS)
def promote(entry: EntryId, request: Request, caller: CodebookRetirer) -> Json:
    """Retire a proven rule that the live model has learnt: liked, in training data, and not needed on the regression set."""
    check_rate(request, caller)
    store = store_of(request)
    count_votes(store, actor=caller.user_id)
    version, trial = promote_entry(store.settings, store, codebook.get_entry(store, entry), by=caller.user_id)
    return {"version": version.model_dump(mode="json", exclude_none=True), "trial": trial_json(trial)}


@router.post("/{entry}/try", responses=ERRORS)
def try_(entry: EntryId, request: Request, caller: CodebookProposer) -> Json:
    """Answer the regression set with the live model, with and without the proposal."""
    check_rate(request, caller)
    store = store_of(request)
    found = codebook.get_entry(store, entry)
    trial = try_entry(store.settings, store, found, actor=caller.user_id, removed=found.state == "active")
    return trial_json(trial)


@router.post("/{entry}/approve", responses=ERRORS)
def approve(entry: EntryId, body: ReasonBody, request: Request, caller: CodebookApprover) -> Json:
    """Make a proposal live, after its trial. `state` is `waits` where something speaks against it: a second clinician decides."""
    check_rate(request, caller)
    store = store_of(request)
    found = codebook.get_entry(store, entry)
    version, trial = approve_entry(store.settings, store, found, by=caller.user_id, reason=body.reason)
    state = "waits for a second person" if version is None else "live"
    shown = None if version is None else version.model_dump(mode="json", exclude_none=True)
    return {"state": state, "version": shown, "trial": trial_json(trial)}


@router.post("/{entry}/refuse", responses=ERRORS)
def refuse(entry: EntryId, body: ReasonBody, request: Request, caller: CodebookApprover) -> Json:
    """Decide against a proposal."""
    check_rate(request, caller)
    store = store_of(request)
    found = codebook.get_entry(store, entry)
    return as_json(codebook.refuse(store, found.revision_id, by=caller.user_id, reason=body.reason), caller)


@router.post("/{entry}/retire", responses=ERRORS)
def retire(entry: EntryId, body: ReasonBody, request: Request, caller: CodebookRetirer) -> Json:
    """Take a live entry out of the codebook; needs a reason."""
    check_rate(request, caller)
    store = store_of(request)
    version = codebook.retire(store, codebook.get_entry(store, entry).entry_id, by=caller.user_id, reason=body.reason)
    return version.model_dump(mode="json", exclude_none=True)


def as_json(entry: CodebookEntry, caller: Caller, counts: codebook_votes.VoteCounts | None = None) -> Json:
    votes = counts or codebook_votes.VoteCounts()
    shown = entry if caller.role in QUESTION_READERS else without_question(entry)
    also = [{"topic": topic.id, "name": topic.en_name, "words": list(topic.shown), "left_out": list(topic.left_out)}
            for topic in topics_of(entry.content.triggers)]  # fmt: skip
    return {
        **shown.model_dump(mode="json", exclude_none=True), "helpful": votes.helpful, "harmful": votes.harmful,
        "also_reaches": also,
    }  # fmt: skip


def trial_json(trial: CodebookTrial) -> Json:
    """A trial, how many questions it reaches that no rule comes from, and what it does to ordinary answers."""
    return {
        **trial.model_dump(mode="json"), "reached": trial.reached, "ordinary": trial.ordinary,
        "quality_change": round(trial.quality_change, 4), "lowers_quality": trial.lowers_quality,
    }  # fmt: skip


def without_question(entry: CodebookEntry) -> CodebookEntry:
    """An entry without the question that it comes from; of an example the question is the entry."""
    content = entry.content.model_copy(update={"question": "–" if entry.kind == "example" else "", "answers": ()})
    return entry.model_copy(update={"content": content})
