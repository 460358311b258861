"""Sites: places (a ward, a clinic) that share one store and one assistant, each with users, rules and experiments of its own.

    assign(store, user, "ward-7", actor="cli")        # their answers follow the rules and experiments of ward-7
    site_of(store, user_id)                           # "main" for the central staff, and for whoever is not a user
    record_site(store, "cor_…")                       # where a judgement came from; its author may have moved since
    list_sites(store)

The site of a request is that of the user whose key or session it has; no header can name another. Users of `main` are the
central staff: they review, approve and read what all sites send. A user of any other site asks the assistant, sends feedback, and
reviews and reads what was answered and said at that site (site_items.py), so nothing that another site wrote.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Table, select, update

from medloop.contracts import AuditEvent, Correction, Feedback, utc_now
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.rule import EVERY_SITE
from medloop.errors import InputError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.genuine_rows import genuine_rows
from medloop.store.records import codebook, crud, experiments, routes
from medloop.store.records.site_rules import ASKERS as ASKERS
from medloop.store.records.site_rules import check_role_at
from medloop.store.records.users import User, end_access, second_admin
from medloop.store.records.write_request import Json
from medloop.store.tables import api_keys, audit_log, record_sites, users

SITE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
MAY_WAIT = ("users.add", "users.change", "users.password", "users.approve", "users.site")  # lines that begin or end a wait


@dataclass(frozen=True)
class SiteSummary:
    site: str
    users: int
    rules: int  # live entries of the codebook for this site alone
    experiment: str | None  # that runs there


def checked_site(name: str) -> str:
    if not SITE.fullmatch(name) or name == EVERY_SITE:
        raise InputError(f"'{name[:40]}' cannot be the name of a site", "Use 1 to 32 of: small letters, digits and -")
    return name


def known_site(store: Store, name: str) -> str:
    """The name of a site that somebody belongs to: a slip of the pen must not make one."""
    with store.read() as conn:
        known = {DEFAULT_SITE, *conn.execute(select(users.c.site)).scalars()}
    if checked_site(name) not in known:
        raise InputError(
            f"Nobody belongs to the site '{name}'",
            f"Sites are {', '.join(sorted(known))}; a new one begins with: medloop site assign USER {name}",
        )
    return name


def check_mover(user: User, actor: str) -> None:
    if user.user_id == actor:
        raise InputError("You cannot move yourself to another site", "Ask another admin")


def assign(store: Store, user: User, site: str, *, actor: str) -> int:
    """Move a user to a site. Their sessions and keys end, because they gain or lose what they may read; how many keys. Keys of
    programs of another site do not speak for them any more. Who comes to `main` from another site will read what all sites wrote:
    where an admin of the service moves a clinician there, a second one approves it, as with a new clinician. A move away ends
    such a wait, so that a slip can be undone; a wait for anything else (a new clinician, a new password) stays."""
    checked_site(site)
    check_role_at(user.name, user.role, site)
    with store.write() as conn:
        grants = site == DEFAULT_SITE and user.site != DEFAULT_SITE
        waiting = second_admin(conn, user.role, actor) if grants else None
        released = site != DEFAULT_SITE and _waits_for_a_move_alone(conn, user.user_id)
        values = {"site": site, **({"requested_by": waiting} if waiting or released else {})}
        conn.execute(update(users).where(users.c.user_id == user.user_id).values(**values))
        keys = end_access(conn, user.user_id, actor)
        _end_speaking_for(conn, user.user_id, site, actor)
        detail: dict[str, str | int | float | bool] = {"name": user.name, "site": site, "keys_revoked": keys}
        detail |= {"waits": waiting is not None, **({"wait_ended": True} if released else {})}
        audit.append(conn, AuditEvent(actor=actor, action="users.site", subject=user.user_id, detail=detail))
    return keys


def _waits_for_a_move_alone(conn: Connection, user_id: str) -> bool:
    """Whether the user waits for a second admin, and only because they were moved to `main`. The log knows: since the line that
    last let them in, nothing but moves asked for a second admin."""
    if conn.execute(select(users.c.requested_by).where(users.c.user_id == user_id)).scalar() is None:
        return False
    mine = (audit_log.c.subject == user_id, audit_log.c.action.in_(MAY_WAIT))
    for row in conn.execute(select(audit_log).where(*mine).order_by(audit_log.c.seq.desc())):
        detail = json.loads(row.detail)
        if detail.get("waits") and row.action != "users.site":
            return False
        if row.action in ("users.add", "users.approve") or "role" in detail or "wait_ended" in detail:
            return True
    return False


def _end_speaking_for(conn: Connection, user_id: str, site: str, actor: str) -> None:
    """Keys of programs of other sites (but `main`) do not speak any more for a user who belongs to `site` now."""
    query = select(api_keys.c.api_key_id, api_keys.c.speaks_for).join(users, users.c.user_id == api_keys.c.user_id)
    for row in conn.execute(query.where(users.c.site.not_in((DEFAULT_SITE, site)), api_keys.c.revoked.is_(None))).all():
        if user_id in row.speaks_for:
            left = [person for person in row.speaks_for if person != user_id]
            conn.execute(update(api_keys).where(api_keys.c.api_key_id == row.api_key_id).values(speaks_for=left))
            detail: dict[str, str | int | float | bool] = {"no_longer_for": user_id}
            audit.append(conn, AuditEvent(actor=actor, action="api_keys.change", subject=row.api_key_id, detail=detail))


def site_of(store: Store, user_id: str | None) -> str:
    with store.read() as conn:
        return conn.execute(select(users.c.site).where(users.c.user_id == (user_id or ""))).scalar() or DEFAULT_SITE


def record_site(store: Store, record_id: str) -> str:
    """The site that a judgement was sent from."""
    rows = genuine_rows(store, record_sites, select(record_sites).where(record_sites.c.record_id == record_id))
    return str(rows[0].site) if rows else DEFAULT_SITE


def sites_of_records(store: Store) -> dict[str, str]:
    """By record, the site it was sent from; those of `main` are left out."""
    with store.read() as conn:
        return {row.record_id: row.site for row in conn.execute(select(record_sites.c.record_id, record_sites.c.site))}


def site_rows(record_ids: Sequence[str], site: str, actor: str) -> tuple[list[tuple[Table, Json]], list[AuditEvent]]:
    """The rows that say where judgements came from, and their audit lines, for the writer; none for those of `main`."""
    if site == DEFAULT_SITE:
        return [], []
    rows: list[tuple[Table, Json]] = [
        (record_sites, {"record_id": one, "site": site, "timestamp": utc_now()}) for one in record_ids
    ]
    return rows, [AuditEvent(actor=actor, action="record_sites.add", subject=one, detail={"site": site}) for one in record_ids]


def scope_of(store: Store, record: Correction | Feedback) -> str:
    """Whose answers a judgement may change: those of the site that it was sent from, or of all sites where central staff sent
    it. What an import brought counts as sent by the clinician whom it names."""
    site = record_site(store, crud.id_of(record))
    if site == DEFAULT_SITE and record.clinician_id != record.recorded_by:
        site = site_of(store, record.clinician_id)
    return EVERY_SITE if site == DEFAULT_SITE else site


def list_sites(store: Store) -> list[SiteSummary]:
    """`main` first, then every site that has a user, a champion of its own, a live rule or an experiment."""
    with store.read() as conn:
        people = Counter(conn.execute(select(users.c.site)).scalars())
    rules = Counter(entry.site for entry in codebook.live(store).entries)
    plans = {row.plan.site: row for row in reversed(experiments.every(store))}
    names = {*people, *rules, *plans, *routes.site_champions(store)} - {DEFAULT_SITE, EVERY_SITE}
    return [
        SiteSummary(
            name, people[name], rules[name], row.plan.experiment_id if (row := experiments.running(store, name)) else None
        )
        for name in (DEFAULT_SITE, *sorted(names))
    ]
