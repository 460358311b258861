"""Erasure: a person's records out of the store, of every dataset and of every file, with proof; models that learnt them flagged.

    proof = erase(store, ErasureRequest(subject="patient 4711", reason="asked on 3 May"), actor="user:li")

The order survives a kill at any moment: a sealed journal of what has to go, then the rows with their tombstones in one
transaction, then files, training jobs on them, flags and the catalog, then a look through the whole workspace, then the proof;
the journal goes last. Whoever asks again after a kill, asks for the rest. The journal is encrypted under a key that only the
master key opens: at no time does an erased word lie in a file of its own. Proof and log name ids, hashes and counts.

Leaves out: backups and files outside the workspace, what was sent to a teacher, and weights: a model is flagged, not unlearnt.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import Field

from medloop.contracts import AuditEvent, Contract, utc_now, uuid7
from medloop.contracts.base import Text, Timestamp
from medloop.errors import InputError, IntegrityError
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure import find_files
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


@dataclass(frozen=True)
class ErasureRequest:
    """Whom or what to erase: one subject (an external id or its hash), or records by their ids; and why.

    Training jobs on data that changes are cancelled, unless `keep_jobs`; then they are only named.
    """

    reason: str
    subject: str | None = None
    records: tuple[str, ...] = ()
    keep_jobs: bool = False


class TrainingJobs(Protocol):
    """The training jobs of a workspace, as far as an erasure has to do with them."""

    def on(self, hashes: Collection[str], paths: Collection[str]) -> list[str]:
        """Those not over that learn from these hashes or read these paths of the workspace."""

    def unread(self) -> list[str]:
        """The folders of jobs that are too damaged to say what they read."""

    def stop(self, job_ids: Collection[str], erasure_id: str) -> None:
        """Cancel them and see them end; their records keep the reason."""

    def stopped(self, erasure_id: str) -> list[dict[str, str]]:
        """What this erasure cancelled: job, state and reason."""


class ErasureCase(Contract):
    """One erasure: whom it is about, who asked for it and why."""

    erasure_id: Text
    subject: str | None = None
    asked: tuple[Text, ...] = ()
    reason: Text
    actor: Text
    started: Timestamp
    keep_jobs: bool = False
    shared: int = Field(0, ge=0)  # records of others that hold some of the same text, and stay


class ErasureProof(ErasureCase):
    """What an erasure did. No erased word is in it; `complete`: the last look found none either, and no job goes on with them."""

    finished: Timestamp
    complete: bool
    rows: dict[str, int] = Field(default_factory=dict)  # rows of the store that went, by table
    tombstones: tuple[dict[str, str], ...] = ()
    files: tuple[dict[str, Any], ...] = ()  # what was rewritten or removed, with its hash before and after
    flagged: tuple[dict[str, str], ...] = ()  # models that learnt from what went
    jobs: tuple[Text, ...] = ()  # runs that were begun on the old data, and jobs that were kept or did not end
    alive: tuple[Text, ...] = ()  # jobs that were to be stopped for it and have not ended
    cancelled: tuple[dict[str, str], ...] = ()  # training jobs that were stopped for it
    elsewhere: tuple[Text, ...] = ()  # files outside the workspace that were made of it
    store: str = ""
    verified: dict[str, int] = Field(default_factory=dict)  # the last look: files, bytes, hits, texts looked for
    left: tuple[Text, ...] = ()
    unsearched: tuple[Text, ...] = ()


class ErasurePlan(ErasureCase):
    """The journal: sealed while the erasure is under way, gone afterwards."""

    record_ids: dict[str, tuple[str, ...]]
    words: tuple[tuple[str, bool], ...]
    marks: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()

    @property
    def ids(self) -> set[str]:
        return {record_id for ids in self.record_ids.values() for record_id in ids}


@dataclass(frozen=True)
class ErasurePreview:
    """What an erasure would do."""

    rows: dict[str, int]
    files: list[str]
    datasets: int
    shared: int
    unsearched: list[str]
    jobs: list[str]


def erase(
    store: Store, request: ErasureRequest, *, actor: str, recard: Recard | None = None, jobs: TrainingJobs | None = None
) -> ErasureProof:  # fmt: skip
    """Finish what was begun, then do what is asked; repeated, it answers with the proof of the first time."""
    check_request(request)
    with erasing.erasure_lock(store) as folder:
        for begun in _pending(store, folder):
            _carry_out(store, begun, folder, recard, jobs)
        plan = _plan(store, request, actor)
        if plan is None:
            return _before(store, request, folder)
        _keep(store, plan, folder)
        return _carry_out(store, plan, folder, recard, jobs)


def preview(store: Store, request: ErasureRequest, *, actor: str, jobs: TrainingJobs | None = None) -> ErasurePreview:
    """The same search without a change (but for the audit line: it reads text)."""
    check_request(request)
    plan = _plan(store, request, actor)
    if plan is None:
        raise _nothing(request)
    files = find_files.search_files(store, Cutter(_needles(plan), plan.ids), reports(store))
    rows = {name: len(ids) for name, ids in plan.record_ids.items()}
    hashes = {*plan.datasets, *find_files.hashes_of(store, files.hits)}
    tainted, models = tainted_models(store, hashes)
    running = jobs.on(hashes | tainted, [*files.hits, *models]) if jobs else []
    unsearched = [*files.unsearched, *(jobs.unread() if jobs else ())]
    return ErasurePreview(rows, files.hits, len(plan.datasets), plan.shared, unsearched, running)


def check_known(store: Store, request: ErasureRequest) -> None:
    """Refuse at once what would come to nothing: nobody and nothing of these ids is here, nor was erased before."""
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
        raise InputError("An erasure is of one subject or of records", "Give --subject ID or --record ID")
    reason = request.reason.strip()
    if not reason or len(reason) > LONGEST_REASON or not reason.isprintable():
        raise InputError(
            f"An erasure needs a reason of 1 to {LONGEST_REASON} characters", "For example: --reason 'asked on 3 May'"
        )


def _plan(store: Store, request: ErasureRequest, actor: str) -> ErasurePlan | None:
    """What has to be erased: the rows, what was made of them, other rows that hold the same words, and the words."""
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
    if strangers := [record_id for record_id in unknown if record_id not in before]:
        raise InputError(f"There is no record {strangers[0]}", "Check the id; nothing was erased")
    return ids


def _words(store: Store, ids: dict[str, set[str]]) -> list[tuple[str, bool]]:
    """The texts of rows, and as they look with identifiers taken out, for so they went into datasets."""
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
    """The words that no record which stays says too; what is left of a text may be shared in turn, so until nothing changes."""
    needles, before = needles_of(words), None
    while needles is not before:
        before = needles
        needles = before.without(text.value for text in erasing.other_texts(store, ids, erasing.SOURCE_TABLES))
    return needles


def _copies(
    store: Store, ids: dict[str, set[str]], words: list[tuple[str, bool]], subject: str | None
) -> tuple[dict[str, set[str]], int]:
    """Other rows that hold these words: what was made of them goes too; what is about somebody else stays and is counted.

    Of a subject, every row goes that is about nobody else. Of single records, only rows that medloop itself made from others.
    """
    needles = needles_of(words)
    copies: dict[str, set[str]] = {}
    shared: set[str] = set()
    for text in erasing.other_texts(store, ids):
        if not needles.hit(text.value.encode(errors="replace")):
            continue
        made = text.table not in erasing.SOURCE_TABLES
        if made or (subject is not None and text.subject is None):
            copies.setdefault(text.table, set()).add(text.record_id)
        else:
            shared.add(text.record_id)
    return copies, len(shared)


def _carry_out(store: Store, plan: ErasurePlan, folder: Path, recard: Recard | None, jobs: TrainingJobs | None) -> ErasureProof:
    """Rows, files, jobs, flags, a last look, the proof; every step may be repeated."""
    order = erasing.ErasureOrder(plan.erasure_id, plan.reason, plan.actor)
    erasing.remove_rows(store, {name: set(ids) for name, ids in plan.record_ids.items()}, order)
    needles, log = _needles(plan), folder / f"{plan.erasure_id}.files.jsonl"
    find_files.rewrite_files(store, Cutter(needles, plan.ids), log, plan.erasure_id, recard)
    learning, alive = _learning(store, plan, log, jobs) if jobs else [], set[str]()
    if jobs and learning and not plan.keep_jobs:
        jobs.stop(learning, plan.erasure_id)
        alive = set(learning) & set(_learning(store, plan, log, jobs))
        # What a job wrote down between the rewriting and its end.
        find_files.rewrite_files(store, Cutter(needles, plan.ids), log, plan.erasure_id, recard)
    changes = find_files.logged_changes(log)
    kept = {f"jobs/{job}" for job in (learning if plan.keep_jobs else alive)}
    flagged, begun, elsewhere = update_catalog(store, plan.erasure_id, plan.actor, changes, plan.datasets)
    marks = [bytes.fromhex(mark) for mark in plan.marks]
    compacted = erasing.compact(store, list(plan.record_ids), lambda: find_files.ciphertext_left(store, marks))
    last = find_files.search_files(store, Cutter(needles, plan.ids), folder)
    stones = erasing.tombstones_of(store, plan.erasure_id)
    proof = ErasureProof(
        **{name: getattr(plan, name) for name in ErasureCase.model_fields}, finished=utc_now(),
        complete=not last.hits and not alive,
        rows=_counted(stones), tombstones=tuple(stones),
        files=tuple({key: value for key, value in change.items() if key != "hashes"} for change in changes),
        flagged=tuple(flagged), jobs=tuple(sorted({*begun, *kept})), alive=tuple(sorted(alive)),
        cancelled=tuple(jobs.stopped(plan.erasure_id) if jobs else ()), elsewhere=tuple(elsewhere), store=compacted,
        verified=_verified(last, plan, needles), left=tuple(last.hits),
        unsearched=(*last.unsearched, *(jobs.unread() if jobs else ())),
    )  # fmt: skip
    _prove(store, proof, folder)
    return proof


def _learning(store: Store, plan: ErasurePlan, log: Path, jobs: TrainingJobs) -> list[str]:
    """Training jobs that learn from what went."""
    changes = find_files.logged_changes(log)
    hashes = old_hashes(changes, plan.datasets)
    tainted, models = tainted_models(store, hashes)
    return jobs.on(hashes | tainted, [*(change["path"] for change in changes), *models])


def _verified(last: FileSearch, plan: ErasurePlan, needles: Needles) -> dict[str, int]:
    texts = {"texts": len(plan.words), "too_short": needles.too_short}
    return {"files": last.searched, "bytes": last.bytes, "hits": len(last.hits), **texts}


def _prove(store: Store, proof: ErasureProof, folder: Path) -> None:
    """The proof is on the disk before the journal goes; one that is not complete keeps its journal, to be tried again."""
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


def _counted(stones: Sequence[dict[str, str]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for stone in stones:
        counts[stone["table"]] = counts.get(stone["table"], 0) + 1
    return dict(sorted(counts.items()))


def _needles(plan: ErasurePlan) -> Needles:
    return needles_of(list(plan.words))


def _keep(store: Store, plan: ErasurePlan, folder: Path) -> None:
    sealed = seal(_cipher(store), plan.canonical_json().encode(), plan.erasure_id.encode())
    atomic_write(folder / f"{plan.erasure_id}{PENDING}", base64.b64encode(sealed), mode=0o600)


def _pending(store: Store, folder: Path) -> Iterator[ErasurePlan]:
    """Erasures that were begun and not finished, oldest first."""
    for path in sorted(folder.glob(f"*{PENDING}")):
        name = path.name.removesuffix(PENDING)
        try:
            plain = unseal(_cipher(store), base64.b64decode(path.read_bytes()), name.encode())
        except FileNotFoundError:
            continue  # finished meanwhile: who only looks does not hold the lock
        except (InvalidTag, ValueError):
            raise IntegrityError(f"{path} cannot be read with this workspace's key", "Restore the key, or the file") from None
        yield ErasurePlan.from_json(plain.decode())


def _cipher(store: Store) -> AESGCM:
    return AESGCM(hmac.new(consents.hashing_key(store), b"medloop erasure journal", "sha256").digest())


def _before(store: Store, request: ErasureRequest, folder: Path) -> ErasureProof:
    """Nothing is left to erase: the proof of the time when there was."""
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
