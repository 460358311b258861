"""Who is at the keyboard, as a user of the workspace: for steps that two people have to take."""

import sys

import typer

from medloop.cli import ui
from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records import users
from medloop.store.weak_passwords import WeakPasswordError, refuse_weak


def logged_in(store: Store, name: str) -> users.User:
    """The user, after their password: two people cannot be one account."""
    password = str(typer.prompt(f"Password of {name}", hide_input=True))
    user = users.check_password(store, name, password)
    if user is None:
        raise InputError("Wrong user name or password", "'medloop users list' shows who can log in")
    if not user.must_change:
        return user
    if not sys.stdin.isatty():  # somebody else has chosen it, so it proves nothing
        raise InputError(
            f"{name} has not chosen a password yet",
            "Run the command on a terminal: it asks for one. Or run 'medloop api serve', log in at "
            "http://127.0.0.1:8000/web/login and choose one there",
        )
    return _choose_password(store, user, password)


def _choose_password(store: Store, user: users.User, temporary: str) -> users.User:
    """As the page does after the first login: the rules are the same, and keys and sessions end."""
    ui.say("Somebody else set this password. Choose your own before you continue: 12 characters or more, such as random words.")
    while True:
        password = str(typer.prompt("New password", hide_input=True, confirmation_prompt="Repeat new password"))
        try:
            refuse_weak(password, user.name)
        except WeakPasswordError as error:
            ui.say(str(error))
            continue
        if password != temporary:
            break
        ui.say("This is your current password. Choose another one.")
    keys = users.set_password(store, user, password, actor=user.user_id)
    ui.say(f"Your password has been changed.{f' API keys that have stopped working: {keys}.' if keys else ''}")
    return users.get_user(store, user.name)
