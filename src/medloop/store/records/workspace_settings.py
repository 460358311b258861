"""Settings that an admin changes while the server runs: kept in the database, and every change is in the audit log.

    consent_default(store)                                           # ("training",): the boxes that a form starts with
    set_consent_default(store, ("training", "evaluation"), actor="usr_1")

Everything else is in `medloop.yaml` (settings.py), which the server reads once at its start.
"""

from collections.abc import Collection

from sqlalchemy import delete, insert, select

from medloop.contracts import AuditEvent
from medloop.contracts.feedback import Purpose
from medloop.errors import InputError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.tables import workspace_settings

CONSENT_DEFAULT = "feedback.consent_default"
FORM_PURPOSES: tuple[Purpose, ...] = ("training", "evaluation")  # the boxes under every form


def consent_default(store: Store) -> tuple[Purpose, ...]:
    """The uses that are ticked when a form opens; none until an admin chooses some."""
    with store.read() as conn:
        value = conn.execute(select(workspace_settings.c.value).where(workspace_settings.c.name == CONSENT_DEFAULT)).scalar()
    return _known(value or ())


def set_consent_default(store: Store, purposes: Collection[str], *, actor: str) -> tuple[Purpose, ...]:
    """Choose them anew, with one audit line that names the old and the new choice; the same choice again changes nothing."""
    if unknown := sorted(set(purposes) - set(FORM_PURPOSES)):
        raise InputError(f"The forms do not ask for the use '{unknown[0][:64]}'", f"Use {' or '.join(FORM_PURPOSES)}")
    chosen, own_row = _known(purposes), workspace_settings.c.name == CONSENT_DEFAULT
    with store.write() as conn:
        before = _known(conn.execute(select(workspace_settings.c.value).where(own_row)).scalar() or ())
        if before == chosen:
            return chosen
        conn.execute(delete(workspace_settings).where(own_row))
        conn.execute(insert(workspace_settings).values(name=CONSENT_DEFAULT, value=list(chosen)))
        detail: dict[str, str | int | float | bool] = {"old": ",".join(before) or "none", "new": ",".join(chosen) or "none"}
        audit.append(conn, AuditEvent(actor=actor, action="settings.change", subject=CONSENT_DEFAULT, detail=detail))
    return chosen


def _known(purposes: Collection[str]) -> tuple[Purpose, ...]:
    return tuple(purpose for purpose in FORM_PURPOSES if purpose in purposes)
