"""Users, their API keys and their browser sessions.

    user = add_user(store, "dr.li", "clinician", password="…", actor="cli")
    text = new_key(store, user, scopes=("feedback:write",), actor="cli")     # the only time it is shown
    find_key(store, text), find_session(store, token)                        # -> Credential or None

A key is `mlk_<id>_<secret>` and a session is a random token. The secrets have 256 random bits, so a plain SHA-256 protects them
as well as a slow hash would; only that hash is stored. The lookups return None for a disabled user, an expired or revoked key and
an ended session. Each change leaves a line in the audit log.

Whoever changes their password, or gets a new one, another role or is disabled, loses all keys and sessions. A role that reads
patients' words, or that can give it to others, takes two: what one user of the service grants waits for another (`approve_user`).
The command line has no second person, because whoever has it has the key of the database.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Row, delete, insert, or_, select, update

from medloop.contracts import AuditEvent, utc_now, uuid7
from medloop.errors import InputError
from medloop.store import audit, passwords, weak_passwords
from medloop.store.db import Store
from medloop.store.records.site_rules import check_role_at, check_speaks_for_site
from medloop.store.tables import api_keys, sessions, users

Role = Literal["clinician", "annotator", "engineer", "auditor", "admin"]
ROLES: tuple[str, ...] = get_args(Role)
RATERS = ("clinician", "annotator")
APPROVED_ROLES = frozenset({*RATERS, "admin"})  # they read text, or decide who does
# What a key may do, as far as its user's role allows it. A browser session has all scopes.
SCOPES = {
    "feedback:write": "send ratings, choices, corrections and traces", "feedback:read": "list and export records",
    "queue": "take items from the review queue and answer them", "data": "build and read de-identified datasets",
    "incidents": "read and close incidents", "gate": "run the gate, read its verdicts, sign and waive",
    "codebook": "read, propose, approve and retire rules of the codebook",
    "rubrics": "read, draft, accept, edit and drop criteria from corrections",
    "metrics": "read numbers about the feedback and the server", "jobs": "start, watch and stop training jobs",
    "registry": "read, register, promote, deploy and roll back versions of the model", "audit": "read the audit log",
    "experiments": "plan, start, read and decide experiments",
    "privacy": "record consent, decide on quarantine, erase", "users": "manage users and keys",
    "chat": "ask the live assistant", "widget": "send feedback about answers from a page of another origin",
}  # fmt: skip
KEY = re.compile(r"mlk_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
NAME = re.compile(r"[^\W_][\w.@-]{0,63}")
IDLE, LONGEST = timedelta(minutes=30), timedelta(hours=12)  # of a session
MARK_USED_EVERY = timedelta(minutes=10)  # `last_used` is updated at most this often per key
SLIDE_EVERY = timedelta(minutes=1)  # the end of a session is moved at most this often
USER_COLUMNS = ("user_id", "name", "role", "created", "disabled", "password", "must_change", "requested_by", "site")
_KNOWN_IDS: WeakKeyDictionary[Store, dict[str, str]] = WeakKeyDictionary()  # asked with every rating that names a clinician


@dataclass(frozen=True)
class User:
    user_id: str
    name: str
    role: str
    created: datetime
    disabled: bool
    has_password: bool
    must_change: bool = False  # log in, then choose a new password before anything else
    requested_by: str | None = None  # the admin whose grant waits for a second one
    site: str = "main"

    @property
    def waits(self) -> bool:
        """For the approval of a second admin: no login and no key works."""
        return self.requested_by is not None

    @property
    def state(self) -> Literal["active", "waits", "disabled"]:
        return "disabled" if self.disabled else "waits" if self.waits else "active"


class NotApprovedError(InputError):
    """The right password of a user whose role a second admin has not approved yet."""


class SecondAdminError(InputError):
    """Whoever granted a role may not approve it."""


@dataclass(frozen=True)
class ApiKey:
    api_key_id: str
    user: str
    scopes: tuple[str, ...]
    created: datetime
    expires: datetime | None
    last_used: datetime | None
    revoked: datetime | None
    speaks_for: tuple[str, ...] = ()  # names of the clinicians whom it may name

    @property
    def state(self) -> Literal["active", "expired", "revoked"]:
        expired = self.expires is not None and self.expires <= utc_now()
        return "revoked" if self.revoked is not None else "expired" if expired else "active"


@dataclass(frozen=True)
class Credential:
    """A valid key or session, and its user."""

    id: str
    user: User
    scopes: frozenset[str]
    via: Literal["key", "session"]
    csrf: str = ""
    stale: bool = False  # `mark_used` should update its stored time
    speaks_for: frozenset[str] = frozenset()  # ids of the clinicians whom a program's key may name


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()


# Users


def add_user(store: Store, name: str, role: str, *, password: str | None = None, actor: str, temporary: bool = False) -> User:
    """Add somebody. A `temporary` password has to be changed at the first login."""
    if not NAME.fullmatch(name):
        raise InputError(f"'{name[:64]}' is not a valid user name", "Use letters, digits and . @ - _ (at most 64)")
    if role not in ROLES:
        raise InputError(f"There is no role '{role[:64]}'", f"Roles are {', '.join(ROLES)}")
    password_hash = None if password is None else _hash(password, name)
    user = User(uuid7(), name, role, utc_now(), False, password_hash is not None, temporary)
    with store.write() as conn:
        user = replace(user, requested_by=second_admin(conn, role, actor))
        if conn.execute(select(users.c.id).where(users.c.name == name)).first():
            raise InputError(f"There is already a user '{name}'", "Choose another name; 'medloop users list' shows all users")
        row = {"user_id": user.user_id, "name": name, "role": role, "created": user.created, "disabled": False, "site": user.site}
        conn.execute(insert(users).values(**row, password=password_hash, must_change=temporary, requested_by=user.requested_by))
        _note(conn, actor, "users.add", user.user_id, name=name, role=role, waits=user.waits)
    return user


def list_users(store: Store) -> list[User]:
    with store.read() as conn:
        return [_as_user(row._mapping) for row in conn.execute(select(users).order_by(users.c.id)).all()]


def count_waiting(store: Store, *, not_by: str) -> int:
    """Users whose role waits for a second admin, without those that this admin has asked for."""
    return sum(user.waits and not user.disabled and user.requested_by != not_by for user in list_users(store))


def names(store: Store) -> dict[str, str]:
    """The name of each user by id."""
    return {user.user_id: user.name for user in list_users(store)}


def get_user(store: Store, name: str) -> User:
    with store.read() as conn:
        row = conn.execute(select(users).where(users.c.name == name)).first()
    if row is None:
        raise InputError(f"There is no user '{name[:64]}'", "'medloop users list' shows all users")
    return _as_user(row._mapping)


def find_user_id(store: Store, id_or_name: str) -> str | None:
    """The id of the user who has this id or this name; None if nobody has. Users are never deleted, so an answer stays true."""
    known = _KNOWN_IDS.setdefault(store, {})
    if id_or_name not in known:
        with store.read() as conn:
            named = or_(users.c.user_id == id_or_name, users.c.name == id_or_name)
            ids = list(conn.execute(select(users.c.user_id).where(named)).scalars())
        if not ids:
            return None
        known[id_or_name] = id_or_name if id_or_name in ids else ids[0]
    return known[id_or_name]


def change_user(store: Store, user: User, *, actor: str, role: str | None = None, disabled: bool | None = None) -> int:
    """Change the role of a user, or disable or enable them. Their sessions and keys end; returns how many keys."""
    if role is not None and role not in ROLES:
        raise InputError(f"There is no role '{role[:64]}'", f"Roles are {', '.join(ROLES)}")
    if role is not None:
        check_role_at(user.name, role, user.site)
    changes: dict[str, Any] = {k: v for k, v in {"role": role, "disabled": disabled}.items() if v is not None}
    with store.write() as conn:
        waits_for = None if disabled else second_admin(conn, role or user.role, actor)
        pending = {"requested_by": waits_for} if waits_for or role else {}
        conn.execute(update(users).where(users.c.user_id == user.user_id).values(**changes, **pending))
        keys = end_access(conn, user.user_id, actor)  # neither a session nor a key keeps the old rights
        detail = {**changes, "waits": waits_for is not None, "keys_revoked": keys}
        _note(conn, actor, "users.change", user.user_id, name=user.name, **detail)
    return keys


def set_password(store: Store, user: User, password: str, *, actor: str, temporary: bool = False) -> int:
    """All sessions and keys of the user end; returns how many keys. A `temporary` password is changed at the first login."""
    password_hash = _hash(password, user.name)
    with store.write() as conn:
        waits_for = None if actor == user.user_id else second_admin(conn, user.role, actor)
        pending = {"requested_by": waits_for} if waits_for else {}
        values = {"password": password_hash, "must_change": temporary, **pending}
        conn.execute(update(users).where(users.c.user_id == user.user_id).values(**values))
        keys = end_access(conn, user.user_id, actor)
        detail: dict[str, bool | int] = {"temporary": temporary, "waits": waits_for is not None, "keys_revoked": keys}
        _note(conn, actor, "users.password", user.user_id, name=user.name, **detail)
    return keys


def approve_user(store: Store, user: User, *, actor: str) -> None:
    """Let in a user whose role another admin has granted, as `user` shows it. The grant and the approval are both audited."""
    pending = (users.c.user_id == user.user_id) & (users.c.role == user.role) & users.c.requested_by.is_not(None)
    with store.write() as conn:
        requested_by = conn.execute(select(users.c.requested_by).where(pending)).scalar()
        if requested_by is None:
            raise InputError(f"{user.name} does not wait for an approval as {user.role}", "'medloop users list' shows who waits")
        if actor in (requested_by, user.user_id):
            raise SecondAdminError("Another admin has to approve this", f"On this machine: medloop users approve {user.name}")
        conn.execute(update(users).where(pending).values(requested_by=None))
        _note(conn, actor, "users.approve", user.user_id, name=user.name, role=user.role, requested_by=str(requested_by))


def second_admin(conn: Connection, role: str, actor: str) -> str | None:
    """The admin who must not be alone in granting this role: a user of the service. The command line is nobody's account."""
    is_user = conn.execute(select(users.c.id).where(users.c.user_id == actor)).first() is not None
    return actor if is_user and role in APPROVED_ROLES else None


def check_password(store: Store, name: str, password: str) -> User | None:
    """The user if they may log in with this password, else None, after the same amount of work. A refusal is audited.

    NotApprovedError: the password is right, and the user waits for a second admin.
    """
    with store.read() as conn:
        row = conn.execute(select(users).where(users.c.name == name)).first()
    good = passwords.verify_password(password, row.password if row is not None else None)
    if good and row is not None and not row.disabled and row.requested_by is None:
        return _as_user(row._mapping)
    if row is not None:  # an unknown name is not logged: it may be a password in the wrong field
        with store.write() as conn:
            _note(conn, row.user_id, "sessions.refused", row.user_id)
    if good and row is not None and not row.disabled:
        raise NotApprovedError(f"{name} waits for a second admin's approval", f"On this machine: medloop users approve {name}")
    return None


def _hash(password: str, user_name: str) -> str:
    weak_passwords.refuse_weak(password, user_name)
    return passwords.hash_password(password)


# Keys


def new_key(
    store: Store, user: User, *, scopes: Sequence[str] = (), expires: datetime | None = None, speaks_for: Sequence[User] = (),
    actor: str,
) -> str:  # fmt: skip
    """Make a key and return its text, which cannot be read again. Without scopes it may do what the user's role may do.

    A program's key may pass on what the clinicians in `speaks_for` say, and nobody else's.
    """
    _check_speaks_for(user, speaks_for)
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown:
        raise InputError(f"There is no scope '{unknown[0][:64]}'", f"Scopes are {', '.join(SCOPES)}")
    key_id = secrets.token_hex(6)
    text = f"mlk_{key_id}_{secrets.token_urlsafe(32)}"
    row = {"api_key_id": key_id, "user_id": user.user_id, "sha256": digest(text), "created": utc_now(), "expires": expires}
    with store.write() as conn:
        named = sorted({person.user_id for person in speaks_for})
        conn.execute(insert(api_keys).values(**row, scopes=sorted(set(scopes) or set(SCOPES)), speaks_for=named))
        _note(conn, actor, "api_keys.add", key_id, user=user.user_id, **({"speaks_for": ", ".join(named)} if named else {}))
    return text


def _check_speaks_for(user: User, speaks_for: Sequence[User]) -> None:
    if speaks_for and user.role in RATERS:
        raise InputError(f"{user.name} is a person ({user.role}) and speaks only for themselves", "Use a key of an engineer")
    for person in speaks_for:
        if person.role != "clinician" or person.disabled or person.waits:
            state = "disabled" if person.disabled else "not approved yet" if person.waits else f"of the role {person.role}"
            raise InputError(
                f"{person.name} is {state}; a key may speak only for clinicians", "Annotators answer through the review queue"
            )
        check_speaks_for_site(user.name, user.site, person.name, person.site)


def list_keys(store: Store) -> list[ApiKey]:
    query = select(api_keys, users.c.name).join(users, users.c.user_id == api_keys.c.user_id).order_by(api_keys.c.id)
    with store.read() as conn:
        rows = conn.execute(query).all()
    known = names(store)
    return [
        ApiKey(r.api_key_id, r.name, tuple(r.scopes), r.created, r.expires, r.last_used, r.revoked,
               tuple(known[user_id] for user_id in r.speaks_for)) for r in rows
    ]  # fmt: skip


def revoke_key(store: Store, key_id: str, *, actor: str) -> None:
    """Revoke a key. Its row stays, because the audit log refers to it."""
    with store.write() as conn:
        live = (api_keys.c.api_key_id == key_id) & api_keys.c.revoked.is_(None)
        if conn.execute(update(api_keys).where(live).values(revoked=utc_now())).rowcount == 0:
            raise InputError(f"There is no active key '{key_id[:64]}'", "'medloop api keys list' shows the ids")
        _note(conn, actor, "api_keys.revoke", key_id)


def find_key(store: Store, text: str) -> Credential | None:
    if not KEY.fullmatch(text):
        return None
    query = select(api_keys, *_of_user()).join(users, users.c.user_id == api_keys.c.user_id)
    with store.read() as conn:
        row = conn.execute(query.where(api_keys.c.sha256 == digest(text))).first()
    now = utc_now()
    if row is None or _is_out(row) or row.revoked is not None or (row.expires is not None and row.expires <= now):
        return None
    stale = row.last_used is None or now - row.last_used >= MARK_USED_EVERY
    scopes, speaks_for = frozenset(row.scopes), frozenset(row.speaks_for)
    return Credential(row.api_key_id, _user_of(row), scopes, "key", stale=stale, speaks_for=speaks_for)


# Sessions


def open_session(store: Store, user: User, *, actor: str) -> str:
    """Open a session and return its token for the cookie; expired sessions are deleted."""
    token, now = secrets.token_urlsafe(32), utc_now()
    row = {"sha256": digest(token), "user_id": user.user_id, "csrf": secrets.token_urlsafe(32), "created": now}
    with store.write() as conn:
        conn.execute(delete(sessions).where(sessions.c.expires <= now))
        conn.execute(insert(sessions).values(**row, expires=now + IDLE))
        _note(conn, actor, "sessions.login", user.user_id)
    return token


def find_session(store: Store, token: str) -> Credential | None:
    query = select(sessions, *_of_user()).join(users, users.c.user_id == sessions.c.user_id)
    with store.read() as conn:
        row = conn.execute(query.where(sessions.c.sha256 == digest(token))).first()
    now = utc_now()
    if row is None or _is_out(row) or min(row.expires, row.created + LONGEST) <= now:
        return None
    stale = now + IDLE - row.expires >= SLIDE_EVERY
    return Credential(row.sha256[:16], _user_of(row), frozenset(SCOPES), "session", csrf=row.csrf, stale=stale)


def close_session(store: Store, token: str) -> None:
    with store.write() as conn:
        mine = sessions.c.sha256 == digest(token)
        user_id = conn.execute(select(sessions.c.user_id).where(mine)).scalar()
        conn.execute(delete(sessions).where(mine))
        if user_id is not None:
            _note(conn, str(user_id), "sessions.logout", str(user_id))


def mark_used(store: Store, credential: Credential, text: str) -> None:
    """Store that a key or a session was used now. Not audited, because nothing changes."""
    now = utc_now()
    if credential.via == "key":
        moved = update(api_keys).where(api_keys.c.api_key_id == credential.id).values(last_used=now)
    else:
        moved = update(sessions).where(sessions.c.sha256 == digest(text)).values(expires=now + IDLE)
    with store.write() as conn:
        conn.execute(moved)


def _is_out(row: Row[Any]) -> bool:
    return bool(row.user_disabled) or row.user_requested_by is not None


def end_access(conn: Connection, user_id: str, actor: str) -> int:
    """End all sessions and revoke all keys of a user; returns how many keys."""
    conn.execute(delete(sessions).where(sessions.c.user_id == user_id))
    live = (api_keys.c.user_id == user_id) & api_keys.c.revoked.is_(None)
    key_ids = list(conn.execute(select(api_keys.c.api_key_id).where(live)).scalars())
    conn.execute(update(api_keys).where(live).values(revoked=utc_now()))
    for key_id in key_ids:
        _note(conn, actor, "api_keys.revoke", key_id)
    return len(key_ids)


def _note(conn: Connection, actor: str, action: str, subject: str, **detail: str | bool | int) -> None:
    audit.append(conn, AuditEvent(actor=actor, action=action, subject=subject, detail=dict(detail)))


def _of_user() -> list[Any]:
    return [users.c[name].label(f"user_{name}") for name in USER_COLUMNS]


def _user_of(row: Row[Any]) -> User:
    return _as_user(row._mapping, "user_")


def _as_user(values: Mapping[Any, Any], prefix: str = "") -> User:
    known = {name: values[prefix + name] for name in USER_COLUMNS}
    has_password = known.pop("password") is not None
    return User(**known, has_password=has_password)
