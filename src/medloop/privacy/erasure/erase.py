"""Erasure: remove a person's records from the store, every dataset and every file, with proof, and flag models trained on them.

    proof = erase(store, ErasureRequest(subject="patient 4711", reason="asked on 3 May"), actor="user:li")

The order survives a kill at any moment. First a journal says what must be removed. Then the rows are replaced by tombstones in
one transaction. Then come files, training jobs on them, flags and the catalog, a search of the whole workspace, and the proof.
The journal is deleted last. After a kill, the same request finishes the rest. The journal is encrypted with a key that only the
master key opens, so erased text is never in a plain file. Proof and log contain ids, hashes and counts.

Not covered: backups, files outside the workspace, what was sent to a teacher, and weights: a model is flagged, not changed.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from medloop.contracts import utc_now
from medloop.errors import InputError
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure import find_files, journal, register
from medloop.privacy.erasure.contracts import ErasureCase, ErasurePlan, ErasurePreview, ErasureProof, ErasureRequest, TrainingJobs
from medloop.privacy.erasure.find_files import FileSearch, Recard, needles_of
from medloop.privacy.erasure.flags import old_hashes, tainted_models, update_catalog
from medloop.privacy.erasure.notes import check_reason
from medloop.privacy.erasure.plan import make_plan, note, requested_records
from medloop.privacy.erasure.proof_page import render
from medloop.privacy.erasure.rewrite import Cutter
from medloop.privacy.phi.scrub import assess
from medloop.store.db import Store
from medloop.store.files.atomic import atomic_write
from medloop.store.records import erasing, erasure_requests


class SecondPersonNeededError(InputError):
    """The erasure removes critical flags or incidents' texts, and nobody has agreed to that yet."""

    def __init__(self, plan: ErasurePlan, finished: Sequence[str] = ()) -> None:
        self.evidence, self.ids, self.ids_sha256 = plan.evidence, plan.record_ids, plan.ids_sha256
        self.removed = _removed_so_far(finished)
        counts = " and ".join(f"{name}: {count:,}" for name, count in plan.evidence.items())
        super().__init__(
            f"This erasure removes the text of safety evidence ({counts}), so two people must agree",
            "Request it with --user NAME; then another clinician or admin approves it",
        )


class ChangedSinceRequestError(InputError):
    """The records are not those that two people agreed on, or not those that the second person would agree to."""

    def __init__(self, approved: str, now: str, finished: Sequence[str] = ()) -> None:
        super().__init__(
            f"The records that this erasure removes have changed since it was requested (set {approved[:12]}, now {now[:12]}), "
            f"so an approval does not hold. {_removed_so_far(finished)}",
            "Look at them again with --dry-run, request the erasure anew, and have that request approved",
        )


def _removed_so_far(finished: Sequence[str]) -> str:
    """What a request that is not carried out has removed: nothing, but earlier erasures were finished before it was looked at."""
    if not finished:
        return "Nothing was removed"
    return f"Nothing was removed for it, but earlier erasures that had been interrupted were finished: {', '.join(finished)}"


def erase(
    store: Store, request: ErasureRequest, *, actor: str, recard: Recard | None = None, jobs: TrainingJobs | None = None
) -> ErasureProof:  # fmt: skip
    """Finish earlier erasures, then carry out the request; a repeated request returns the proof of the first time."""
    check_request(request)
    with erasing.erasure_lock(store) as folder:
        finished = [carry_out(store, pending, folder, recard, jobs) for pending in journal.pending(store, folder)]
        if own := [proof for proof in finished if request.request_id and proof.request_id == request.request_id]:
            return own[0]  # what two people agreed on is done; records that came since were no part of it
        planned = make_plan(store, request, actor)
        if planned is None:
            return _before(store, request, folder)
        earlier = [proof.erasure_id for proof in finished]
        if planned.plan.evidence and request.approved_by is None:
            raise SecondPersonNeededError(planned.plan, earlier)
        if request.approved_by is not None and not planned.plan.is_agreed(request.approved_ids):
            raise ChangedSinceRequestError(request.approved_ids or "", planned.plan.ids_sha256, earlier)
        journal.keep(store, planned.plan, folder)
        return carry_out(store, planned.plan, folder, recard, jobs)


def preview(store: Store, request: ErasureRequest, *, actor: str, jobs: TrainingJobs | None = None) -> ErasurePreview:
    """Search without changing anything, except for the audit line about the reading."""
    check_request(request)
    planned = make_plan(store, request, actor)
    if planned is None:
        raise _nothing(request)
    plan = planned.plan
    files = find_files.search_files(store, Cutter(needles_of(plan.words, plan.sessions), plan.ids), reports(store))
    rows = {name: len(ids) for name, ids in plan.record_ids.items()}
    hashes = {*plan.datasets, *find_files.hashes_of(store, files.hits)}
    tainted, models = tainted_models(store, hashes)
    running = jobs.on(hashes | tainted, [*files.hits, *models]) if jobs else []
    unsearched = [*files.unsearched, *(jobs.unread() if jobs else ())]
    touched = list(dict.fromkeys([*files.hits, *find_files.answer_caches(store)]))
    return ErasurePreview(
        rows,
        touched,
        len(plan.datasets),
        plan.shared,
        unsearched,
        running,
        planned.foreign,
        plan.evidence,
        plan.ids_sha256,
        files.by_hand,
    )


def check_unchanged(store: Store, request: ErasureRequest, *, actor: str) -> None:
    """ChangedSinceRequestError if other records would go than those of the stored request. One that was interrupted goes on."""
    folder = reports(store)
    if any(plan.request_id == request.request_id for plan in journal.pending(store, folder)):
        return
    planned = make_plan(store, request, actor)
    if planned is None:
        _before(store, request, folder)
    elif not planned.plan.is_agreed(request.approved_ids):
        raise ChangedSinceRequestError(request.approved_ids or "", planned.plan.ids_sha256)


def check_known(store: Store, request: ErasureRequest) -> None:
    """InputError if the store has nothing to erase under these ids and never had."""
    check_request(request)
    if request.subject is None:
        if not any(requested_records(store, request).values()) and not erasing.erased_in(store, request.records):
            raise _nothing(request)
        return
    subject, folder = subject_of(store, request.subject), reports(store)
    if any(erasing.find_by_subject(store, subject).values()) or any(
        plan.subject == subject for plan in journal.pending(store, folder)
    ):
        return
    if not any(ErasureProof.from_json(path.read_text(encoding="utf-8")).subject == subject for path in folder.glob("er_*.json")):
        raise _nothing(request)


def proof_path(store: Store, erasure_id: str) -> Path:
    return reports(store) / f"{erasure_id}.json"


def reports(store: Store) -> Path:
    return store.settings.workspace.reports / "erasure"


def check_request(request: ErasureRequest) -> None:
    if (request.subject is None) == (not request.records):
        raise InputError("Erase either one subject or a list of records", "Give --subject ID or --record ID")
    check_reason(request.reason)


@dataclass
class _Erasure:
    """An erasure in progress: what its steps share."""

    store: Store
    plan: ErasurePlan
    folder: Path
    recard: Recard | None
    jobs: TrainingJobs | None
    learning: list[str] = field(default_factory=list)  # training jobs on erased data
    alive: set[str] = field(default_factory=set)  # those of them that were told to stop and have not ended
    flagged: tuple[list[dict[str, str]], list[str], list[str]] = ([], [], [])
    key_file: str = ""
    compacted: str = ""
    last: FileSearch = field(default_factory=FileSearch)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.plan.erasure_id}.files.jsonl"

    @property
    def cutter(self) -> Cutter:
        return Cutter(needles_of(self.plan.words, self.plan.sessions), self.plan.ids)


def _remove_rows(work: _Erasure) -> None:
    order = erasing.ErasureOrder(work.plan.erasure_id, work.plan.reason, work.plan.actor)
    erasing.retire_keys(work.store, work.plan.keys)
    ids = {name: set(record_ids) for name, record_ids in work.plan.record_ids.items()}
    erasing.remove_rows(work.store, ids, work.plan.keys, order, drop_model=_may_name_somebody)


def _may_name_somebody(name: str) -> bool:
    """Dates, numbers and unknown words are common in names of models, and the evidence should keep those."""
    return any(span.kind == "NAME" for span in assess(name).spans)


def _destroy_keys(work: _Erasure) -> None:
    register.add(work.store, work.plan)  # first: once the keys are gone, nobody can find out again what they were
    work.key_file = erasing.destroy_keys(work.store, work.plan.keys).name


def _rewrite_files(work: _Erasure) -> None:
    find_files.remove_condemned(work.store, find_files.answer_caches(work.store), work.log)
    find_files.rewrite_files(work.store, work.cutter, work.log, work.plan.erasure_id, work.recard)
    changed = {change["path"] for change in find_files.logged_changes(work.log)}
    find_files.remove_condemned(work.store, set(work.plan.condemned) - changed, work.log)


def _stop_jobs(work: _Erasure) -> None:
    if not work.jobs:
        return
    work.learning = _learning(work.store, work.plan, work.log, work.jobs)
    if work.learning and not work.plan.keep_jobs:
        work.jobs.stop(work.learning, work.plan.erasure_id)
        work.alive = set(work.learning) & set(_learning(work.store, work.plan, work.log, work.jobs))
        _rewrite_files(work)  # a job may have written text after the first rewriting


def _flag_models(work: _Erasure) -> None:
    changes = find_files.logged_changes(work.log)
    work.flagged = update_catalog(work.store, work.plan.erasure_id, work.plan.actor, changes, work.plan.datasets)


def _compact_store(work: _Erasure) -> None:
    samples = [bytes.fromhex(sample) for sample in work.plan.marks]
    needles = work.cutter.needles

    def left() -> bool:
        return find_files.ciphertext_left(work.store, samples) or find_files.database_holds(work.store, needles)

    work.compacted = erasing.compact(work.store, list(work.plan.record_ids), left)


def _search_again(work: _Erasure) -> None:
    work.last = find_files.search_files(work.store, work.cutter, work.folder)
    find_files.look_into_database(work.store, work.cutter.needles, work.last)


# In this order; each step may be repeated after a kill. A new step goes before the search, which proves that nothing is left.
STEPS = (_remove_rows, _destroy_keys, _rewrite_files, _stop_jobs, _flag_models, _compact_store, _search_again)


def carry_out(store: Store, plan: ErasurePlan, folder: Path, recard: Recard | None, jobs: TrainingJobs | None) -> ErasureProof:
    work = _Erasure(store, plan, folder, recard, jobs)
    for step in STEPS:
        step(work)
    proof = _proof_of(work)
    register.add(store, plan, find_files.logged_changes(work.log))
    _prove(store, proof, folder)
    return proof


def _proof_of(work: _Erasure) -> ErasureProof:
    plan, last, jobs = work.plan, work.last, work.jobs
    flagged, started_runs, elsewhere = work.flagged
    stones = erasing.tombstones_of(work.store, plan.erasure_id)
    running = {f"jobs/{job}" for job in (work.learning if plan.keep_jobs else work.alive)}
    changes = find_files.logged_changes(work.log)
    counts = {"files": last.searched, "bytes": last.bytes, "hits": len(last.hits), "texts": len(plan.words)}
    return ErasureProof(
        **{name: getattr(plan, name) for name in ErasureCase.model_fields}, finished=utc_now(),
        complete=not last.hits and not work.alive,
        rows=dict(sorted(Counter(stone["table"] for stone in stones).items())), tombstones=tuple(stones),
        files=tuple({key: value for key, value in change.items() if key != "hashes"} for change in changes),
        flagged=tuple(flagged), jobs=tuple(sorted({*started_runs, *running})), alive=tuple(sorted(work.alive)),
        cancelled=tuple(jobs.stopped(plan.erasure_id) if jobs else ()), elsewhere=tuple(elsewhere), store=work.compacted,
        keys_destroyed=len(plan.keys), key_file=work.key_file,
        verified={**counts, "too_short": work.cutter.needles.too_short}, left=tuple(last.hits),
        columns=tuple(last.columns), by_hand=tuple(last.by_hand),
        unsearched=(*last.unsearched, *(jobs.unread() if jobs else ())),
    )  # fmt: skip


def _learning(store: Store, plan: ErasurePlan, log: Path, jobs: TrainingJobs) -> list[str]:
    """Training jobs that use the erased data."""
    changes = find_files.logged_changes(log)
    hashes = old_hashes(changes, plan.datasets)
    tainted, models = tainted_models(store, hashes)
    return jobs.on(hashes | tainted, [*(change["path"] for change in changes), *models])


def _prove(store: Store, proof: ErasureProof, folder: Path) -> None:
    """Write the proof, then delete the journal; an incomplete erasure keeps its journal, so that it can be finished."""
    path = proof_path(store, proof.erasure_id)
    atomic_write(path.with_suffix(".md"), render(proof), mode=0o600)
    text = json.dumps(proof.model_dump(mode="json", exclude_none=True), ensure_ascii=False, indent=2) + "\n"
    atomic_write(path, text, mode=0o600)
    done = "erasure.done" if proof.complete else "erasure.incomplete"
    note(
        store, proof.actor, done, proof.erasure_id, rows=sum(proof.rows.values()), files=len(proof.files),
        left=len(proof.left), jobs_cancelled=len(proof.cancelled),
    )  # fmt: skip
    if proof.complete:
        if proof.request_id is not None:
            erasure_requests.finish(store, proof.request_id, proof.erasure_id)
        journal.remove(store, folder, proof.erasure_id)


def _before(store: Store, request: ErasureRequest, folder: Path) -> ErasureProof:
    """The proof of an earlier erasure of the same, because nothing is left to erase."""
    subject = None if request.subject is None else subject_of(store, request.subject)
    known = set(erasing.erased_in(store, request.records).values())
    for path in sorted(folder.glob("er_*.json"), reverse=True):
        proof = ErasureProof.from_json(path.read_text(encoding="utf-8"))
        if proof.erasure_id in known or (subject is not None and proof.subject == subject):
            if request.approved_by is not None and request.request_id is not None:
                erasure_requests.finish(store, request.request_id, proof.erasure_id)
            return proof
    raise _nothing(request)


def _nothing(request: ErasureRequest) -> InputError:
    what = "that subject" if request.subject is not None else ", ".join(request.records)
    return InputError(f"The store holds nothing about {what}", "Check the id; nothing was erased")
