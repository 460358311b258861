"""Sites: places (a ward, a clinic) that share one store and one assistant, each with users, rules and experiments of its own.

    assign(store, user, "ward-7", actor="cli")        # their answers follow the rules and experiments of ward-7
    site_of(store, user_id)                           # "main" for the central staff, and for whoever is not a user
    list_sites(store)

The site of a request is that of the user whose key or session it has; no header can name another. Users of `main` are the
central staff: they review, approve and read what all sites send. A user of any other site asks the assistant and sends
feedback, and reads no record at all (api/policy.py), so nothing that another site wrote.
"""

import re
from collections import Counter
from dataclasses import dataclass

from sqlalchemy import select, update

from medloop.contracts import AuditEvent
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.rule import EVERY_SITE
from medloop.errors import InputError
from medloop.store import audit
from medloop.store.db import Store
from medloop.store.records import codebook, experiments
from medloop.store.records.users import User, end_access
from medloop.store.tables import users

SITE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
ASKERS = ("clinician", "engineer")  # the other roles only read and decide, which is the work of the central staff


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


def assign(store: Store, user: User, site: str, *, actor: str) -> int:
    """Move a user to a site. Their sessions and keys end, because they gain or lose what they may read; how many keys."""
    checked_site(site)
    if site != DEFAULT_SITE and user.role not in ASKERS:
        raise InputError(
            f"{user.name} is {user.role}; only {' and '.join(f'{role}s' for role in ASKERS)} can belong to a site",
            "The other roles are central staff",
        )
    with store.write() as conn:
        conn.execute(update(users).where(users.c.user_id == user.user_id).values(site=site))
        keys = end_access(conn, user.user_id, actor)
        detail: dict[str, str | int | float | bool] = {"name": user.name, "site": site, "keys_revoked": keys}
        audit.append(conn, AuditEvent(actor=actor, action="users.site", subject=user.user_id, detail=detail))
    return keys


def site_of(store: Store, user_id: str | None) -> str:
    with store.read() as conn:
        return conn.execute(select(users.c.site).where(users.c.user_id == (user_id or ""))).scalar() or DEFAULT_SITE


def scope_of(store: Store, *people: str | None) -> str:
    """Whose answers these people's words may change (an author's, and that of the program which passed them on): those of the
    site that one of them belongs to, or of all sites where they are central staff."""
    return next((site for person in people if (site := site_of(store, person)) != DEFAULT_SITE), EVERY_SITE)


def list_sites(store: Store) -> list[SiteSummary]:
    """`main` first, then every site that has a user, a live rule or an experiment."""
    with store.read() as conn:
        people = Counter(conn.execute(select(users.c.site)).scalars())
    rules = Counter(entry.site for entry in codebook.live(store).entries)
    plans = {row.plan.site: row for row in reversed(experiments.every(store))}
    names = {*people, *rules, *plans} - {DEFAULT_SITE, EVERY_SITE}
    return [
        SiteSummary(
            name, people[name], rules[name], row.plan.experiment_id if (row := experiments.running(store, name)) else None
        )
        for name in (DEFAULT_SITE, *sorted(names))
    ]
