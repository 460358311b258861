"""`medloop users` and `medloop api keys`: who may use the API and the web pages, and the API keys of their programs."""

from datetime import datetime, timedelta
from typing import Annotated

import typer

from medloop.cli import ui
from medloop.contracts import utc_now
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.store import passwords
from medloop.store.audit_trail import actor
from medloop.store.db import open_store
from medloop.store.records import users

users_app = typer.Typer(no_args_is_help=True, help="Add, disable and manage users of the API and the web pages.")
keys_app = typer.Typer(no_args_is_help=True, help="Create, list and revoke API keys for programs.")

Name = Annotated[str, typer.Argument(help="Name of the user.")]


def register(app: typer.Typer) -> None:
    app.add_typer(users_app, name="users")


@users_app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="Up to 64 letters, digits and . @ - _")],
    role: Annotated[str, typer.Option(help="Role: clinician, annotator, engineer, auditor or admin.")],
    ask: Annotated[bool, typer.Option("--ask", help="Ask for the password instead of generating one.")] = False,
    no_password: Annotated[bool, typer.Option("--no-password", help="For programs: API keys only, no login.")] = False,
) -> None:
    """Add a user. The password is generated, shown once, and changed by the user at the first login.

    Example:  medloop users add dr.li --role clinician
    """
    password = None if no_password else _password(ask)
    with open_store(ui.settings()) as store:
        users.add_user(store, name, role, password=password, actor=actor(), temporary=password is not None)
    ui.say(f"Added {name} ({role}).")
    if password is not None and not ask:
        _show_password(password)


@users_app.command("list")
def list_(json_: ui.AsJson = False) -> None:
    """List all users.

    Example:  medloop users list
    """
    with open_store(ui.settings()) as store:
        known = users.list_users(store)
    if json_:
        ui.say_json(known)
        return
    if not known:
        ui.next_step("users add NAME --role ROLE", "No users yet. Add one:")
        return
    rows = []
    for user in known:
        logs_in = "with a password" if user.has_password else "with keys only"
        state = "waits for approval" if user.state == "waits" else user.state
        role = user.role if user.site == DEFAULT_SITE else f"{user.role} at {user.site}"
        rows.append((user.name, role, logs_in, state, _day(user.created)))
    ui.table(("name", "role", "logs in", "state", "since"), rows)


@users_app.command("disable")
def disable(name: Name, undo: Annotated[bool, typer.Option("--undo", help="Enable the user again.")] = False) -> None:
    """Disable a user: sessions end and API keys are revoked, also if the user is enabled again. Their records stay.

    Example:  medloop users disable dr.li
    """
    with open_store(ui.settings()) as store:
        keys = users.change_user(store, users.get_user(store, name), disabled=not undo, actor=actor())
    ui.say(f"{name} is {'active again' if undo else 'disabled'}.{_revoked(keys)}")


@users_app.command("approve")
def approve(name: Name) -> None:
    """Approve an account that waits for a second admin, if there is no other admin who could do it on the users page.

    Clinicians, annotators and admins whom one admin has added, changed or given a new password on that page cannot log in before
    they are approved. 'medloop users list' shows who waits. The audit log records who ran this command.

    Example:  medloop users approve dr.li
    """
    with open_store(ui.settings()) as store:
        user = users.get_user(store, name)
        users.approve_user(store, user, actor=actor())
    ui.say(f"{name} is approved as {user.role}.")


@users_app.command("role")
def role(name: Name, role: Annotated[str, typer.Argument(help="The new role.")]) -> None:
    """Change the role of a user. Their sessions end and their API keys are revoked.

    Example:  medloop users role dr.li auditor
    """
    with open_store(ui.settings()) as store:
        keys = users.change_user(store, users.get_user(store, name), role=role, actor=actor())
    ui.say(f"{name} is now {role}.{_revoked(keys)}")


@users_app.command("password")
def password(
    name: Name, ask: Annotated[bool, typer.Option("--ask", help="Ask for the password instead of generating one.")] = False
) -> None:
    """Set a password that the user changes at the next login. Their sessions end and their API keys are revoked.

    Example:  medloop users password dr.li
    """
    text = _password(ask)
    with open_store(ui.settings()) as store:
        keys = users.set_password(store, users.get_user(store, name), text, actor=actor(), temporary=True)
    ui.say(f"{name} has a new password; all their sessions have ended.{_revoked(keys)}")
    if not ask:
        _show_password(text)


@keys_app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="User who owns the key; the key can do no more than their role.")],
    scope: Annotated[list[str] | None, typer.Option(help="What the key may do; may be repeated (default: all).")] = None,
    days: Annotated[int, typer.Option(min=0, max=3650, help="Days until the key expires; 0: never.")] = 365,
    speaks_for: Annotated[
        list[str] | None,
        typer.Option(help="Clinician whose feedback this program may pass on; may be repeated (default: nobody)."),
    ] = None,
) -> None:
    """Create an API key and show it once; only its hash is stored.

    Example:  medloop api keys new triage-agent --scope feedback:write --speaks-for dr.li --days 90
    """
    expires = utc_now() + timedelta(days=days) if days else None
    with open_store(ui.settings()) as store:
        clinicians, user = [users.get_user(store, person) for person in speaks_for or ()], users.get_user(store, name)
        text = users.new_key(store, user, scopes=scope or (), expires=expires, speaks_for=clinicians, actor=actor())
    ui.say(f"Key: {text}")
    ends = f" It expires on {expires:%Y-%m-%d}." if expires else ""
    ui.say(f"It is shown only once.{ends} Send it as 'Authorization: Bearer KEY'.")
    if user.must_change:
        ui.say(f"{name} has not logged in yet: choosing a password at the first login revokes this key. Make another one then.")


@keys_app.command("list")
def list_keys(json_: ui.AsJson = False) -> None:
    """List all API keys by id; the keys themselves are not stored.

    Example:  medloop api keys list
    """
    with open_store(ui.settings()) as store:
        keys = users.list_keys(store)
    if json_:
        ui.say_json([{**vars(key), "state": key.state} for key in keys])
        return
    if not keys:
        ui.next_step("api keys new NAME", "No keys yet. Create one:")
        return
    rows = []
    for key in keys:
        scopes = "all" if set(key.scopes) == set(users.SCOPES) else ", ".join(key.scopes)
        used = "never" if key.last_used is None else f"{key.last_used:%Y-%m-%d %H:%M}"
        named = ", ".join(key.speaks_for) or "-"
        rows.append((key.api_key_id, key.user, scopes, named, _day(key.created), _day(key.expires), used, key.state))
    ui.table(("id", "user", "scopes", "speaks for", "created", "expires", "last used", "state"), rows)


@keys_app.command("revoke")
def revoke(key_id: Annotated[str, typer.Argument(metavar="ID", help="As 'medloop api keys list' shows it.")]) -> None:
    """Revoke a key for good; a running server refuses it within a second.

    Example:  medloop api keys revoke 3f2a9c41d07e
    """
    with open_store(ui.settings()) as store:
        users.revoke_key(store, key_id, actor=actor())
    ui.say(f"Key {key_id} is revoked.")


def _password(ask: bool) -> str:
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True)) if ask else passwords.generate_password()


def _show_password(text: str) -> None:
    ui.say(f"Password: {text}")
    ui.say("It is shown only once; only its hash is stored. It has to be changed at the first login.")


def _revoked(keys: int) -> str:
    return f" Revoked API keys: {keys}." if keys else ""


def _day(date: datetime | None) -> str:
    return "never" if date is None else f"{date:%Y-%m-%d}"
