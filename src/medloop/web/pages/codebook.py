"""The codebook: what waits for approval, what is live, where each entry comes from, what it has done; approve, edit, retire."""

from datetime import UTC, date, datetime, time
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller
from medloop.api.routes.codebook import QUESTION_READERS, CodebookProposer, CodebookReader, CodebookRetirer, without_question
from medloop.codebook.lay_words import topics_of
from medloop.contracts.dataset import Stratum
from medloop.contracts.rule import FORBIDDEN_ACTS, MOST_RULE, MOST_SENTENCE, MOST_TEXT
from medloop.errors import InputError, ResultError
from medloop.loop import codebook as work
from medloop.loop.codebook_effects import count_votes
from medloop.loop.codebook_growth import promote, propose_examples, propose_prompt
from medloop.loop.codebook_trial import approve_entry, try_entry
from medloop.store.db import Store
from medloop.store.records import codebook, codebook_votes
from medloop.web.form_steps import begin_step, refusal_code
from medloop.web.people import People
from medloop.web.render import FormFields, redirect, show, translator_of

router = APIRouter(prefix="/web", include_in_schema=False)

STEPS = ("try", "approve", "refuse", "edit", "retire", "promote", "merge")
SCOPES: tuple[str, ...] = get_args(Stratum)
STATES = {"waiting": "proposed", "active": "active", "retired": "retired", "refused": "refused", "history": ""}  # of the tabs
NO_VOTES = codebook_votes.VoteCounts()


@router.get("/codebook")
def codebook_list(
    request: Request,
    caller: CodebookReader,
    state: Annotated[str, Query(max_length=10)] = "",
    done: Annotated[str, Query(max_length=10)] = "",
    site: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    note = translator_of(request)(f"codebook_done_{done}") if done in ("propose", "rollback") else ""
    return _list(request, caller, state, note=note, site=site)


@router.post("/codebook")
def write_rule(request: Request, caller: CodebookProposer, form: FormFields) -> Response:
    check_rate(request, caller)
    try:
        entry = work.written_entry(
            store_of(request), form.get("text", ""), triggers=_triggers(form), first_sentence=form.get("first_sentence", ""),
            forbids=_forbids(form), scope=_scope(form),
            author=caller.user_id, actor=caller.user_id, expires=_end_of(form.get("expires", "")),
        )  # fmt: skip
    except (InputError, ResultError) as error:
        return _list(request, caller, "", 422, problem=str(error), typed=form)
    return redirect(f"/web/codebook/{entry.entry_id}?done=propose")


@router.post("/codebook/examples")
def add_examples(request: Request, caller: CodebookProposer) -> Response:
    check_rate(request, caller)
    proposals = propose_examples(store_of(request), actor=caller.user_id)
    note = translator_of(request)("codebook_made_examples", n=len(proposals.entries))
    return _list(request, caller, "waiting", note=note)


@router.post("/codebook/prompt")
def add_prompt(request: Request, caller: CodebookProposer) -> Response:
    check_rate(request, caller)
    try:
        entry = propose_prompt(store_of(request), actor=caller.user_id, author=caller.user_id)
    except (InputError, ResultError) as error:
        return _list(request, caller, "waiting", 422, problem=str(error))
    return redirect(f"/web/codebook/{entry.entry_id}?done=propose")


@router.post("/codebook/rollback")
def roll_back(request: Request, caller: CodebookRetirer, form: FormFields) -> Response:
    check_rate(request, caller)
    try:
        number = int(form.get("version", "")) if form.get("version", "").isdigit() else -1
        codebook.rollback(store_of(request), number, by=caller.user_id, reason=form.get("reason", ""))
    except (InputError, ResultError) as error:
        return _list(request, caller, "history", 422, problem=str(error))
    return redirect("/web/codebook?state=history&done=rollback")


@router.get("/codebook/{entry}")
def entry_page(request: Request, caller: CodebookReader, entry: str, done: Annotated[str, Query(max_length=10)] = "") -> Response:
    note = translator_of(request)(f"codebook_done_{done}") if done in (*STEPS, "propose", "waits") else ""
    return _entry(request, caller, entry, note=note)


@router.post("/codebook/{entry}/{step}")
def take_step(request: Request, caller: CodebookReader, entry: str, step: str, form: FormFields) -> Response:
    store = begin_step(request, caller, step, STEPS)
    found = codebook.get_entry(store, entry)
    try:
        done = _take(store, caller, found, step, form)
    except codebook.NoSuchEntryError as error:
        if step != "merge":
            raise
        return _entry(request, caller, found.entry_id, 422, problem=str(error), about=step)
    except (InputError, ResultError) as error:
        code = refusal_code(error, codebook.CodebookPersonError)
        return _entry(request, caller, found.entry_id, code, problem=str(error), typed=form, about=step)
    return redirect(f"/web/codebook/{found.entry_id}?done={done}")


def _take(store: Store, caller: Caller, found: Any, step: str, form: dict[str, str]) -> str:
    reason = form.get("reason", "")
    if step == "retire":
        codebook.retire(store, found.entry_id, by=caller.user_id, reason=reason)
    elif step == "refuse":
        codebook.refuse(store, found.revision_id, by=caller.user_id, reason=reason)
    elif step == "approve":
        version, _ = approve_entry(store.settings, store, found, by=caller.user_id, reason=reason)
        return "approve" if version is not None else "waits"
    elif step == "promote":
        count_votes(store, actor=caller.user_id)
        promote(store.settings, store, found, by=caller.user_id)
    elif step == "merge":
        _require(caller, codebook.PROPOSERS, "merge entries of the codebook")
        other = codebook.get_entry(store, form.get("other", ""))
        work.merge_entries(store, found, other, actor=caller.user_id, author=caller.user_id)
    elif step == "try":
        _require(caller, codebook.PROPOSERS, "try entries of the codebook")
        try_entry(store.settings, store, found, actor=caller.user_id, removed=found.state == "active")
    else:
        _require(caller, codebook.PROPOSERS, "change entries of the codebook")
        changes: dict[str, Any] = {
            "text": form.get("text", ""), "triggers": _triggers(form), "first_sentence": form.get("first_sentence", ""),
            "forbids": _forbids(form), "scope": _scope(form) or found.scope, "expires": _end_of(form.get("expires", "")),
        }  # fmt: skip
        work.draft_edit(store, found, changes, actor=caller.user_id, author=caller.user_id)
    return step


def _require(caller: Caller, roles: tuple[str, ...], what: str) -> None:
    if caller.role not in roles:
        raise codebook.CodebookPersonError(f"Your role ({caller.role}) cannot {what}", f"Allowed roles: {', '.join(roles)}")


def _triggers(form: dict[str, str]) -> tuple[str, ...]:
    return tuple(line.strip() for line in form.get("triggers", "").splitlines() if line.strip())[:8]


def _forbids(form: dict[str, str]) -> tuple[str, ...]:
    return tuple(act for act in FORBIDDEN_ACTS if form.get(f"forbid_{act}"))


def _scope(form: dict[str, str]) -> str:
    return form["scope"] if form.get("scope") in SCOPES else ""


def _end_of(day: str) -> datetime | None:
    if not day:
        return None
    try:
        return datetime.combine(date.fromisoformat(day), time(23, 59, 59), UTC)
    except ValueError:
        raise InputError("The last day is not a date", "Use YYYY-MM-DD") from None


def _list(request: Request, caller: Caller, state: str, code: int = 200, *, site: str = "", **more: Any) -> Response:
    """`site` leaves only entries that hold at that site alone."""
    store = store_of(request)
    if caller.role in codebook.PROPOSERS:
        work.propose_new(store, actor=caller.user_id)
        count_votes(store, actor=caller.user_id)
    newest: dict[tuple[str, str], Any] = {}  # of several revisions that wait, the last one has the evidence of all
    for entry in codebook.entries(store):
        newest.setdefault((entry.entry_id, entry.state), entry)
    every, current = [entry for entry in newest.values() if site in ("", entry.site)], codebook.live(store)
    waiting = [entry for entry in every if entry.state == "proposed"]
    state = state if state in STATES else "waiting" if waiting else "active"
    wanted = STATES[state]
    context: dict[str, Any] = {
        "rows": [entry for entry in every if entry.state == wanted], "state": state, "states": STATES, "current": current,
        "sizes": {name: sum(entry.state == state for entry in every) for name, state in STATES.items() if state},
        "counts": codebook_votes.counts(store), "no_votes": NO_VOTES, "who": People(store, translator_of(request)),
        "versions": codebook.versions(store, limit=50) if state == "history" else [], "scopes": SCOPES,
        "acts": FORBIDDEN_ACTS, "forbidden": _forbids, "max_text": MOST_RULE,
        "max_sentence": MOST_SENTENCE, "max_reason": codebook.MOST_REASON, "may_propose": caller.role in codebook.PROPOSERS,
        "may_retire": caller.role in codebook.RETIRERS, "note": "", "problem": "", "typed": {}, "site": site,
    }  # fmt: skip
    return show(request, caller, "codebook.html", code, **(context | more))


def _entry(request: Request, caller: Caller, name: str, code: int = 200, **more: Any) -> Response:
    store = store_of(request)
    found = codebook.get_entry(store, name)
    history = codebook.revisions(store, found.entry_id)
    live = {entry.revision_id for entry in codebook.live(store).entries}
    trials = [trial for revision in history for trial in codebook.trials(store, revision.revision_id)]
    own = caller.user_id in codebook.authors(store, found)
    context: dict[str, Any] = {
        "entry": found if caller.role in QUESTION_READERS else without_question(found),
        "history": history, "trials": trials, "live": live, "who": People(store, translator_of(request)),
        "counts": codebook_votes.counts(store).get(found.entry_id, NO_VOTES), "conflicts": work.conflicts_of(store, found),
        "may_approve": caller.role in codebook.APPROVERS and found.state == "proposed" and not own, "own": own,
        "may_propose": caller.role in codebook.PROPOSERS, "scopes": SCOPES,
        "acts": FORBIDDEN_ACTS, "forbidden": _forbids, "max_sentence": MOST_SENTENCE,
        "may_retire": caller.role in codebook.RETIRERS and found.revision_id in live, "max_reason": codebook.MOST_REASON,
        "others": [entry for entry in codebook.live(store).entries if found.kind == "rule" == entry.kind
                   and entry.entry_id != found.entry_id and entry.scope == found.scope],
        "also_reaches": topics_of(found.content.triggers),
        "max_text": MOST_RULE if found.kind == "rule" else MOST_TEXT, "note": "", "problem": "", "typed": {}, "about": "",
    }  # fmt: skip
    return show(request, caller, "codebook_entry.html", code, **(context | more))
