"""Erasure: remove a person's records from the store, every dataset and every file, with proof, and flag models trained on them.

    proof = erase(store, ErasureRequest(subject="patient 4711", reason="asked on 3 May"), actor="user:li")

The order survives a kill at any moment. First a journal says what must be removed. Then the rows are replaced by tombstones in
one transaction. Then come files, training jobs on them, flags and the catalog, a search of the whole workspace, and the proof.
The journal is deleted last. After a kill, the same request finishes the rest. The journal is encrypted with a key that only the
master key opens, so erased text is never in a plain file. Proof and log contain ids, hashes and counts.

Not covered: backups, files outside the workspace, what was sent to a teacher, and weights: a model is flagged, not changed.
"""

import base64
import hmac
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from medloop.contracts import AuditEvent, utc_now, uuid7
from medloop.errors import InputError, IntegrityError
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure import find_files
from medloop.privacy.erasure.contracts import ErasureCase, ErasurePlan, ErasurePreview, ErasureProof, ErasureRequest, TrainingJobs
from medloop.privacy.erasure.find_files import FileSearch, Recard, needles_of
from medloop.privacy.erasure.flags import old_hashes, tainted_models, update_catalog
from medloop.privacy.erasure.needles import Needles
from medloop.privacy.erasure.proof_page import render
from medloop.privacy.erasure.rewrite import Cutter
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.store import audit
from medloop.store.crypto import seal, unseal
from medloop.store.db import Store
from medloop.store.files import workspace_scan
from medloop.store.files.atomic import atomic_write
from medloop.store.records import consents, erasing, lineage

PENDING = ".pending"
LONGEST_REASON = 200  # characters


def erase(
    store: Store, request: ErasureRequest, *, actor: str, recard: Recard | None = None, jobs: TrainingJobs | None = None
) -> ErasureProof:  # fmt: skip
    """Finish earlier erasures, then carry out the request; a repeated request returns the proof of the first time."""
    check_request(request)
    with erasing.erasure_lock(store) as folder:
        for pending in _pending(store, folder):
            _carry_out(store, pending, folder, recard, jobs)
        plan = _plan(store, request, actor)
        if plan is None:
            return _before(store, request, folder)
        _keep(store, plan, folder)
        return _carry_out(store, plan, folder, recard, jobs)


def preview(store: Store, request: ErasureRequest, *, actor: str, jobs: TrainingJobs | None = None) -> ErasurePreview:
    """Search without changing anything, except for the audit line about the reading."""
    check_request(request)
    plan = _plan(store, request, actor)
    if plan is None:
        raise _nothing(request)
    files = find_files.search_files(store, Cutter(needles_of(list(plan.words)), plan.ids), reports(store))
    rows = {name: len(ids) for name, ids in plan.record_ids.items()}
    hashes = {*plan.datasets, *find_files.hashes_of(store, files.hits)}
    tainted, models = tainted_models(store, hashes)
    running = jobs.on(hashes | tainted, [*files.hits, *models]) if jobs else []
    unsearched = [*files.unsearched, *(jobs.unread() if jobs else ())]
    return ErasurePreview(rows, files.hits, len(plan.datasets), plan.shared, unsearched, running)


def check_known(store: Store, request: ErasureRequest) -> None:
    """InputError if the store has nothing to erase under these ids and never had."""
    check_request(request)
    if request.subject is None:
        if not any(_records(store, request).values()) and not erasing.erased_in(store, request.records):
            raise _nothing(request)
        return
    subject, folder = subject_of(store, request.subject), reports(store)
    if any(erasing.find_by_subject(store, subject).values()) or any(plan.subject == subject for plan in _pending(store, folder)):
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
    reason = request.reason.strip()
    if not reason or len(reason) > LONGEST_REASON or not reason.isprintable():
        raise InputError(
            f"An erasure needs a reason of 1 to {LONGEST_REASON} characters", "For example: --reason 'asked on 3 May'"
        )


def _plan(store: Store, request: ErasureRequest, actor: str) -> ErasurePlan | None:
    """What must be erased: the rows, what was made from them, other rows that hold the same words, and the words."""
    subject = None if request.subject is None else subject_of(store, request.subject)
    record_ids = _records(store, request) if subject is None else erasing.find_by_subject(store, subject)
    if not any(record_ids.values()):
        return None
    _note(store, actor, "erasure.read", subject or request.records[0], rows=sum(map(len, record_ids.values())))
    record_ids |= {name: ids for name, ids in erasing.find_derived(store, record_ids).items() if ids}
    words = _words(store, record_ids)
    copies, shared = _copies(store, record_ids, words, subject)
    if copies:
        for name, ids in copies.items():
            record_ids.setdefault(name, set()).update(ids)
        words = _words(store, record_ids)
    own = _own(store, record_ids, words)
    every = sorted(set().union(*record_ids.values()))
    return ErasurePlan(
        erasure_id=f"er_{uuid7()}", subject=subject, asked=request.records, reason=request.reason.strip(), actor=actor,
        keep_jobs=request.keep_jobs, started=utc_now(),
        record_ids={name: tuple(sorted(ids)) for name, ids in sorted(record_ids.items())},
        words=tuple((text.text, text.authored) for text in own.words),
        marks=tuple(sample.hex() for sample in erasing.ciphertext_samples(store, record_ids)),
        datasets=tuple(sorted(lineage.datasets_of(store, every))), shared=shared,
    )  # fmt: skip


def _records(store: Store, request: ErasureRequest) -> erasing.RecordIds:
    ids, unknown = erasing.find_by_ids(store, request.records)
    before = erasing.erased_in(store, unknown)
    if never_stored := [record_id for record_id in unknown if record_id not in before]:
        raise InputError(f"There is no record {never_stored[0]}", "Check the id; nothing was erased")
    return ids


def _words(store: Store, ids: dict[str, set[str]]) -> list[tuple[str, bool]]:
    """The texts of rows, as they are and scrubbed, because datasets hold the scrubbed form."""
    words: dict[tuple[str, bool], None] = {}
    scrubbers: dict[str, Scrubber] = {}
    for text in erasing.texts_of(store, ids):
        words[text.value, text.authored] = None
        try:
            clean = scrubbers.setdefault(text.record_id, Scrubber()).scrub(text.value)
        except Unscrubbable:
            continue
        if clean != text.value:
            words[clean, text.authored] = None
    return list(words)


def _own(store: Store, ids: dict[str, set[str]], words: list[tuple[str, bool]]) -> Needles:
    """The words that no remaining record contains. The rest of a text may be shared, too, so repeat until nothing changes."""
    needles, before = needles_of(words), None
    while needles is not before:
        before = needles
        needles = before.without(text.value for text in erasing.other_texts(store, ids, erasing.SOURCE_TABLES))
    return needles


def _copies(
    store: Store, ids: dict[str, set[str]], words: list[tuple[str, bool]], subject: str | None
) -> tuple[dict[str, set[str]], int]:
    """Other rows that hold these words: derived rows are erased, too; rows about somebody else stay and are counted.

    For a subject, every row that is about nobody else is erased. For single records, only rows that medloop derived from others.
    """
    needles = needles_of(words)
    copies: dict[str, set[str]] = {}
    shared: set[str] = set()
    for text in erasing.other_texts(store, ids):
        if not needles.hit(text.value.encode(errors="replace")):
            continue
        derived = text.table not in erasing.SOURCE_TABLES
        if derived or (subject is not None and text.subject is None):
            copies.setdefault(text.table, set()).add(text.record_id)
        else:
            shared.add(text.record_id)
    return copies, len(shared)


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
    compacted: str = ""
    last: FileSearch = field(default_factory=FileSearch)

    @property
    def log(self) -> Path:
        return self.folder / f"{self.plan.erasure_id}.files.jsonl"

    @property
    def cutter(self) -> Cutter:
        return Cutter(needles_of(list(self.plan.words)), self.plan.ids)


def _remove_rows(work: _Erasure) -> None:
    order = erasing.ErasureOrder(work.plan.erasure_id, work.plan.reason, work.plan.actor)
    erasing.remove_rows(work.store, {name: set(ids) for name, ids in work.plan.record_ids.items()}, order)


def _rewrite_files(work: _Erasure) -> None:
    find_files.rewrite_files(work.store, work.cutter, work.log, work.plan.erasure_id, work.recard)


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
    left = partial(find_files.ciphertext_left, work.store, samples)
    work.compacted = erasing.compact(work.store, list(work.plan.record_ids), left)


def _search_again(work: _Erasure) -> None:
    work.last = find_files.search_files(work.store, work.cutter, work.folder)


# In this order; each step may be repeated after a kill. A new step goes before the search, which proves that nothing is left.
STEPS = (_remove_rows, _rewrite_files, _stop_jobs, _flag_models, _compact_store, _search_again)


def _carry_out(store: Store, plan: ErasurePlan, folder: Path, recard: Recard | None, jobs: TrainingJobs | None) -> ErasureProof:
    work = _Erasure(store, plan, folder, recard, jobs)
    for step in STEPS:
        step(work)
    proof = _proof_of(work)
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
        verified={**counts, "too_short": work.cutter.needles.too_short}, left=tuple(last.hits),
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
    _note(
        store, proof.actor, done, proof.erasure_id, rows=sum(proof.rows.values()), files=len(proof.files),
        left=len(proof.left), jobs_cancelled=len(proof.cancelled),
    )  # fmt: skip
    if proof.complete:
        for ending in (".files.jsonl", PENDING):
            workspace_scan.remove(folder / f"{proof.erasure_id}{ending}")


def _keep(store: Store, plan: ErasurePlan, folder: Path) -> None:
    sealed = seal(_cipher(store), plan.canonical_json().encode(), plan.erasure_id.encode())
    atomic_write(folder / f"{plan.erasure_id}{PENDING}", base64.b64encode(sealed), mode=0o600)


def _pending(store: Store, folder: Path) -> Iterator[ErasurePlan]:
    """Unfinished erasures, oldest first."""
    for path in sorted(folder.glob(f"*{PENDING}")):
        name = path.name.removesuffix(PENDING)
        try:
            plain = unseal(_cipher(store), base64.b64decode(path.read_bytes()), name.encode())
        except FileNotFoundError:
            continue  # finished in the meantime: a caller that only reads does not hold the lock
        except (InvalidTag, ValueError):
            raise IntegrityError(f"{path} cannot be read with this workspace's key", "Restore the key, or the file") from None
        yield ErasurePlan.from_json(plain.decode())


def _cipher(store: Store) -> AESGCM:
    return AESGCM(hmac.new(consents.hashing_key(store), b"medloop erasure journal", "sha256").digest())


def _before(store: Store, request: ErasureRequest, folder: Path) -> ErasureProof:
    """The proof of an earlier erasure of the same, because nothing is left to erase."""
    subject = None if request.subject is None else subject_of(store, request.subject)
    known = set(erasing.erased_in(store, request.records).values())
    for path in sorted(folder.glob("er_*.json"), reverse=True):
        proof = ErasureProof.from_json(path.read_text(encoding="utf-8"))
        if proof.erasure_id in known or (subject is not None and proof.subject == subject):
            return proof
    raise _nothing(request)


def _nothing(request: ErasureRequest) -> InputError:
    what = "that subject" if request.subject is not None else ", ".join(request.records)
    return InputError(f"The store holds nothing about {what}", "Check the id; nothing was erased")


def _note(store: Store, actor: str, action: str, subject: str, **detail: str | int | float | bool) -> None:
    with store.write() as conn:
        audit.append(conn, AuditEvent(actor=actor, action=action, subject=subject, detail=detail))
