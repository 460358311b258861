"""Who may sign, waive, approve and adopt at the gate: checked in the transaction of the change, so it holds for every door."""

from sqlalchemy import Connection, select

from medloop.errors import InputError
from medloop.store.tables import users

SIGNERS = ("clinician",)
WAIVER_AUTHORS = ("clinician", "engineer", "admin")
WAIVER_APPROVERS = ("clinician",)


class GatePersonError(InputError):
    """This person may not sign, waive or approve this."""


def check_person(
    conn: Connection, user_id: str, roles: tuple[str, ...], what: str, error: type[InputError] = GatePersonError
) -> str:
    """The role of an active user who has one of these roles; `error` for anybody else."""
    user = conn.execute(select(users.c.role, users.c.disabled, users.c.requested_by).where(users.c.user_id == user_id)).first()
    if user is None or user.disabled or user.requested_by is not None:
        raise error("Only an active user of this workspace can do this", "'medloop users list' shows all users")
    if user.role not in roles:
        raise error(f"Your role ({user.role}) cannot {what}", f"Allowed roles: {', '.join(roles)}")
    return str(user.role)
