"""What an erasure must remove: rows, what was made from them, other rows that hold the same words, the words and the keys."""

from dataclasses import dataclass
from typing import Any

from medloop.contracts import AuditEvent, utc_now, uuid7
from medloop.errors import InputError
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasurePlan, ErasureRequest
from medloop.privacy.erasure.find_files import needles_of
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import erasing, evidence, lineage
from medloop.store.records.evidence import ForeignRecord


@dataclass(frozen=True)
class Planned:
    """The plan, and the records in it that the request did not name."""

    plan: ErasurePlan
    foreign: list[ForeignRecord]


def make_plan(store: Store, request: ErasureRequest, actor: str) -> Planned | None:
    """What must be erased: the rows, what was made from them, other rows that hold the same words, and the words."""
    subject = None if request.subject is None else subject_of(store, request.subject)
    record_ids = requested_records(store, request) if subject is None else erasing.find_by_subject(store, subject)
    if not any(record_ids.values()):
        return None
    note(store, actor, "erasure.read", subject or request.records[0], rows=sum(map(len, record_ids.values())))
    linked = {name: set(ids) for name, ids in record_ids.items()}
    record_ids |= {name: ids for name, ids in erasing.find_derived(store, record_ids).items() if ids}
    copies, shared = _copies(store, record_ids, subject)
    for name, ids in copies.items():
        record_ids.setdefault(name, set()).update(ids)
    plan = ErasurePlan(
        erasure_id=f"er_{uuid7()}", subject=subject, asked=request.records, reason=request.reason.strip(), actor=actor,
        keep_jobs=request.keep_jobs, started=utc_now(), approved_by=request.approved_by, request_id=request.request_id,
        words=own_words(store, record_ids), shared=shared,
        **stored_parts(store, record_ids),
    )  # fmt: skip
    return Planned(plan, evidence.foreign_records(store, linked, copies, subject, request.records))


def stored_parts(store: Store, record_ids: erasing.RecordIds) -> dict[str, Any]:
    """What the plan says about rows, apart from their words."""
    every = sorted(set().union(*record_ids.values()))
    return {
        "record_ids": {name: tuple(sorted(ids)) for name, ids in sorted(record_ids.items())},
        "marks": tuple(sample.hex() for sample in erasing.ciphertext_samples(store, record_ids)),
        "datasets": tuple(sorted(lineage.datasets_of(store, every))), "keys": tuple(sorted(erasing.keys_of(store, record_ids))),
        "sessions": tuple(evidence.sessions_of(store, record_ids)), "evidence": evidence.safety_evidence(store, record_ids),
    }  # fmt: skip


def requested_records(store: Store, request: ErasureRequest) -> erasing.RecordIds:
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


def own_words(store: Store, ids: erasing.RecordIds) -> tuple[tuple[str, bool], ...]:
    """What a search must not find again. Of derived rows only what no remaining row has: phrases of medloop are in many."""
    source, derived = _by_origin(ids)
    words = _not_in(store, ids, _words(store, source), erasing.SOURCE_TABLES)
    return tuple(dict.fromkeys([*words, *_not_in(store, ids, _words(store, derived), None)]))


def _by_origin(ids: erasing.RecordIds) -> tuple[erasing.RecordIds, erasing.RecordIds]:
    source = {name: table_ids for name, table_ids in ids.items() if name in erasing.SOURCE_TABLES}
    return source, {name: table_ids for name, table_ids in ids.items() if name not in source}


def _not_in(
    store: Store, ids: erasing.RecordIds, words: list[tuple[str, bool]], tables: tuple[str, ...] | None
) -> tuple[tuple[str, bool], ...]:
    """The words that no remaining row of these tables contains. The rest of a text may be shared, too, so repeat until
    nothing changes."""
    needles, before = needles_of(words), None
    while needles is not before:
        before = needles
        needles = before.without(text.value for text in erasing.other_texts(store, ids, tables))
    return tuple((text.text, text.authored) for text in needles.words)


def _copies(store: Store, ids: erasing.RecordIds, subject: str | None) -> tuple[erasing.RecordIds, int]:
    """Other rows that hold the words of these records: derived rows are erased, too; rows about somebody else are counted.

    For a subject, every row that is about nobody else is erased. For single records, only rows that medloop derived from others.
    A derived row must hold words that are in no remaining record: others may have given the same reason, and an entry of the
    codebook that came from several records holds questions of all of them. Words of erased criteria, which a teacher or a person
    wrote, count like those of the records.
    """
    source, _ = _by_origin(ids)
    words = _words(store, source)
    needles = needles_of(words)
    copies: erasing.RecordIds = {}
    shared: set[str] = set()
    for text in erasing.other_texts(store, ids, erasing.SOURCE_TABLES):
        if not needles.hit(text.value.encode(errors="replace")):
            continue
        if subject is not None and text.subject is None:
            copies.setdefault(text.table, set()).add(text.record_id)
        else:
            shared.add(text.record_id)
    gone = {name: ids.get(name, set()) | copies.get(name, set()) for name in {*ids, *copies}}
    own = needles_of([*_not_in(store, gone, words, erasing.SOURCE_TABLES), *_of_criteria(store, gone)])
    derived = tuple(name for name in erasing.TABLES if name not in erasing.SOURCE_TABLES)
    for text in erasing.other_texts(store, gone, derived):
        if own.hit(text.value.encode(errors="replace")):
            copies.setdefault(text.table, set()).add(text.record_id)
    return copies, len(shared)


def _of_criteria(store: Store, gone: erasing.RecordIds) -> tuple[tuple[str, bool], ...]:
    """The words of erased criteria that are in no remaining record and in no row which came from one. Words of erased rules are
    not searched for: many are sentences of medloop, and a rule that somebody wrote with such a sentence has to stay."""
    words = _words(store, {name: ids for name, ids in gone.items() if name == "rubric_criteria"})
    if not words:
        return ()
    orphans = evidence.orphans(store, gone, erasing.SOURCE_TABLES)
    return _not_in(store, {name: gone.get(name, set()) | orphans.get(name, set()) for name in {*gone, *orphans}}, words, None)


def note(store: Store, actor: str, action: str, subject: str, **detail: str | int | float | bool) -> None:
    with store.write() as conn:
        audit.append(conn, AuditEvent(actor=actor, action=action, subject=subject, detail=detail))
