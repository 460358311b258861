"""What an erasure must remove: rows, what was made from them, other rows that hold the same words, the words and the keys."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from medloop.contracts import AuditEvent, utc_now, uuid7
from medloop.errors import InputError
from medloop.privacy.consent import subject_of
from medloop.privacy.erasure.contracts import ErasurePlan, ErasureRequest
from medloop.privacy.erasure.find_files import needles_of
from medloop.privacy.erasure.needles import PERSON, ErasedText, Needles
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import erasing, evidence, lineage
from medloop.store.records.evidence import ForeignRecord
from medloop.store.records.stored_texts import Author

SAID: tuple[Author, ...] = ("person", "model", "application")


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
    for name, matches in copies.items():
        record_ids.setdefault(name, set()).update(matches)
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


def _words(store: Store, ids: dict[str, set[str]], authors: Sequence[Author] = SAID) -> list[tuple[str, bool]]:
    """The texts of rows, as they are and scrubbed, because datasets hold the scrubbed form. Never what medloop put there."""
    words: dict[tuple[str, bool], None] = {}
    scrubbers: dict[str, Scrubber] = {}
    for text in erasing.texts_of(store, ids):
        if text.author not in authors:
            continue
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
    """The words that no remaining row of these tables contains, and which no server, model or rule is called."""
    names = _system_names(store, ids)
    needles = _without(needles_of(words), lambda: chain(names, (text.value for text in erasing.other_texts(store, ids, tables))))
    return tuple((text.text, text.authored) for text in needles.words)


def _system_names(store: Store, ids: erasing.RecordIds) -> set[str]:
    """What servers, models and rules are called: in these records, and in those that stay."""
    return {text.value for text in erasing.texts_of(store, ids) if text.author == "system"} | evidence.names_of_others(store, ids)


def _without(needles: Needles, others: Callable[[], Iterable[str]]) -> Needles:
    """The needles without what others have. The rest of a text may be shared, too, so repeat until nothing changes."""
    before = None
    while needles is not before:
        before, needles = needles, needles.without(others())
    return needles


def _personal(store: Store, ids: erasing.RecordIds, subject: str) -> Needles:
    """What takes a record that is about nobody: codes and long texts that this person wrote and no other known person has.

    Everybody asks the everyday questions, and a model answers them alike, so short texts and its answers take nothing.
    """
    written = needles_of(_words(store, ids, ("person",)))
    needles = Needles((text for text in written.words if text.authored and _is_long(text)), written.codes)
    names = _system_names(store, ids)

    def others() -> Iterable[str]:
        texts = erasing.other_texts(store, ids, erasing.SOURCE_TABLES)
        return chain(names, (text.value for text in texts if text.subject not in (None, subject)))

    left = _without(needles, others)
    return Needles(filter(_is_long, left.words), left.names)


def _is_long(text: ErasedText) -> bool:
    return len(text.text.encode(errors="replace")) >= PERSON


def _copies(store: Store, ids: erasing.RecordIds, subject: str | None) -> tuple[dict[str, dict[str, str]], int]:
    """Other rows that hold the words of these records, and what each holds: derived rows are erased, too; others are counted.

    For a subject, a row that is about nobody is erased if it holds a code or a long text of the person. For single records, only
    rows that medloop derived from others.
    A derived row must hold words that are in no remaining record: others may have given the same reason, and an entry of the
    codebook that came from several records holds questions of all of them. Words of erased criteria, which a teacher or a person
    wrote, count like those of the records.
    """
    source, _ = _by_origin(ids)
    words = _words(store, source)
    needles = needles_of(words)
    personal = None if subject is None else _personal(store, source, subject)
    copies: dict[str, dict[str, str]] = {}
    shared: set[str] = set()
    for text in erasing.other_texts(store, ids, erasing.SOURCE_TABLES):
        if text.author == "system":
            continue
        if personal is not None and text.subject is None and (match := personal.match(text.value)):
            copies.setdefault(text.table, {})[text.record_id] = match
        elif needles.hit(text.value.encode(errors="replace")):
            shared.add(text.record_id)
    shared -= {record_id for matches in copies.values() for record_id in matches}
    gone = {name: ids.get(name, set()) | set(copies.get(name, ())) for name in {*ids, *copies}}
    own = needles_of([*_not_in(store, gone, words, erasing.SOURCE_TABLES), *_of_criteria(store, gone)])
    derived = tuple(name for name in erasing.TABLES if name not in erasing.SOURCE_TABLES)
    for text in erasing.other_texts(store, gone, derived):
        if text.author != "system" and (match := own.match(text.value)):
            copies.setdefault(text.table, {})[text.record_id] = match
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
