"""Consent by subject and purpose: granted, withdrawn, looked up; a withdrawal counts from the moment it is recorded.

    subject = subject_of(store, "patient 4711")                    # "sub_…", a keyed hash; the name itself is never stored
    record(store, "patient 4711", ("training",), text_version="2026-01", actor="user:li")
    record(store, "patient 4711", PURPOSES, granted=False, text_version="2026-01", actor="user:li")
    allowed = Register.of(store)
    allowed.covers(feedback, "training")                           # the record's own consent AND the subject's newest word

The hash is HMAC-SHA-256 under a key that only the master key opens and that stays when the master key is changed. The newest
word of a subject about a purpose decides; of two with the same time the withdrawal wins. A subject that never said anything is
covered by what its record says, unless `strict` asks for a grant on file.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, get_args

from medloop.contracts import Consent
from medloop.contracts.feedback import Purpose
from medloop.errors import InputError
from medloop.privacy.clear_names import check_name
from medloop.store.db import Store
from medloop.store.records import consents

PURPOSES: tuple[Purpose, ...] = get_args(Purpose)
SUBJECT = re.compile(r"sub_[0-9a-f]{32}")
LONGEST = 512  # characters of an external id


class Consenting(Protocol):
    """A record as far as consent goes."""

    @property
    def consent(self) -> tuple[Purpose, ...]: ...

    @property
    def subject(self) -> str | None: ...


def subject_of(store: Store, external_id: str) -> str:
    """The hash under which a person is known here; an id that is such a hash already stays as it is."""
    given = external_id.strip()
    if SUBJECT.fullmatch(given):
        return given
    if not given or len(given) > LONGEST or not given.isprintable():
        raise InputError(f"A subject id must have 1 to {LONGEST} printable characters", "Give the id your own system uses")
    key = hmac.new(consents.hashing_key(store), b"medloop subjects", "sha256").digest()
    return "sub_" + hmac.new(key, given.encode(), "sha256").hexdigest()[:32]


def record(
    store: Store,
    external_id: str,
    purposes: Sequence[Purpose],
    *,
    text_version: str,
    actor: str,
    granted: bool = True,
    recorded_by: str | None = None,
) -> Consent:
    """Write down what a subject allowed (or takes back); returns the row."""
    if not text_version.strip():
        raise InputError("A consent needs the version of the text that was agreed to", "For example: --text 2026-01")
    try:
        check_name(text_version.strip())
    except ValueError as problem:
        raise InputError("The version of the consent text is stored as it is and must not name a person", str(problem)) from None
    chosen = tuple(purpose for purpose in PURPOSES if purpose in set(purposes))
    if not chosen or len(chosen) != len(set(purposes)):
        raise InputError("Name at least one purpose", f"Known: {', '.join(PURPOSES)}")
    subject = subject_of(store, external_id)
    consent = Consent(subject=subject, purposes=chosen, granted=granted, text_version=text_version.strip())
    consents.add_consent(store, consent, actor=actor, recorded_by=recorded_by)
    return consent


def standing(consents_: Iterable[Consent]) -> dict[Purpose, Consent]:
    """The newest word about each purpose; of two with the same time the withdrawal."""
    newest: dict[Purpose, Consent] = {}
    for consent in sorted(consents_, key=lambda consent: (consent.timestamp, not consent.granted)):
        newest.update(dict.fromkeys(consent.purposes, consent))
    return newest


@dataclass(frozen=True)
class Register:
    """The newest word of every subject, ready to be joined with records."""

    words: dict[str, dict[Purpose, bool]] = field(default_factory=dict)
    strict: bool = False

    @classmethod
    def of(cls, store: Store, *, strict: bool = False) -> Register:
        by_subject: dict[str, list[Consent]] = {}
        for consent in consents.all_consents(store):
            by_subject.setdefault(consent.subject, []).append(consent)
        words = {
            subject: {purpose: consent.granted for purpose, consent in standing(given).items()}
            for subject, given in by_subject.items()
        }
        return cls(words, strict)

    def covers(self, record: Consenting, purpose: Purpose) -> bool:
        """Whether both the record and the one it is about allow it."""
        if purpose not in record.consent:
            return False
        if record.subject is None:
            return True
        return self.words.get(record.subject, {}).get(purpose, not self.strict)
