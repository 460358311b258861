"""Settings that an admin changes while the server runs: kept in the database, and every change is in the audit log.

    consent_default(store)                                           # ("training",): the boxes that a form starts with
    set_consent_default(store, ("training", "evaluation"), actor="usr_1")
    axes(store)                                                      # ("correctness", …): what raters give stars for

Everything else is in `medloop.yaml` (settings.py), which the server reads once at its start.
"""

import re
import time
from collections.abc import Collection, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import delete, insert, select

from medloop.contracts import AuditEvent
from medloop.contracts.feedback import AXES, FAULT_AXES, Purpose
from medloop.errors import InputError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.tables import workspace_settings

CONSENT_DEFAULT, AXES_SETTING = "feedback.consent_default", "feedback.axes"
FORM_PURPOSES: tuple[Purpose, ...] = ("training", "evaluation")  # the boxes under every form
AXIS = re.compile(r"[a-z][a-z0-9_]{1,31}")
MAX_AXES = 12
CACHE_S = 1.0  # for which a process may use the axes that it read last
_AXES_READ: WeakKeyDictionary[Store, tuple[float, tuple[str, ...]]] = WeakKeyDictionary()  # asked with every rating


def consent_default(store: Store) -> tuple[Purpose, ...]:
    """The uses that are ticked when a form opens; none until an admin chooses some."""
    return _known(_read(store, CONSENT_DEFAULT) or ())


def set_consent_default(store: Store, purposes: Collection[str], *, actor: str) -> tuple[Purpose, ...]:
    """Choose them anew, with one audit line that names the old and the new choice; the same choice again changes nothing."""
    if unknown := sorted(set(purposes) - set(FORM_PURPOSES)):
        raise InputError(f"The forms do not ask for the use '{unknown[0][:64]}'", f"Use {' or '.join(FORM_PURPOSES)}")
    chosen = _known(purposes)
    _change(store, CONSENT_DEFAULT, (), chosen, actor)
    return chosen


def axes(store: Store) -> tuple[str, ...]:
    """The axes that raters of this workspace give stars for; those of the reward (`FAULT_AXES`) come on top of them."""
    read_at, names = _AXES_READ.get(store, (0.0, ()))
    if not read_at or time.monotonic() - read_at > CACHE_S:
        names = tuple(_read(store, AXES_SETTING) or AXES)
        _AXES_READ[store] = (time.monotonic(), names)
    return names


def set_axes(store: Store, names: Sequence[str], *, actor: str) -> tuple[str, ...]:
    """Choose the axes anew, with an audit line. Stars that were given for other axes stay, and count nowhere."""
    chosen = tuple(name for name in dict.fromkeys(names) if name not in FAULT_AXES)
    if not 1 <= len(chosen) <= MAX_AXES:
        raise InputError(f"A workspace has 1 to {MAX_AXES} axes; these are {len(chosen)}", "Write one name per line")
    for name in chosen:
        if not AXIS.fullmatch(name):
            raise InputError(f"'{name[:64]}' cannot be the name of an axis", "Use 2 to 32 of: small letters, digits and _")
    _change(store, AXES_SETTING, AXES, chosen, actor)
    _AXES_READ.pop(store, None)
    return chosen


def _read(store: Store, name: str) -> Any:
    with store.read() as conn:
        return conn.execute(select(workspace_settings.c.value).where(workspace_settings.c.name == name)).scalar()


def _change(store: Store, name: str, default: Sequence[str], chosen: Sequence[str], actor: str) -> None:
    own_row = workspace_settings.c.name == name
    with store.write() as conn:
        before = tuple(conn.execute(select(workspace_settings.c.value).where(own_row)).scalar() or default)
        if before == tuple(chosen):
            return
        conn.execute(delete(workspace_settings).where(own_row))
        conn.execute(insert(workspace_settings).values(name=name, value=list(chosen)))
        detail: dict[str, str | int | float | bool] = {"old": ",".join(before) or "none", "new": ",".join(chosen) or "none"}
        audit.append(conn, AuditEvent(actor=actor, action="settings.change", subject=name, detail=detail))


def _known(purposes: Collection[str]) -> tuple[Purpose, ...]:
    return tuple(purpose for purpose in FORM_PURPOSES if purpose in purposes)
