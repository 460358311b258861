"""Who is at the keyboard, as a user of the workspace: for steps that two people have to take."""

import typer

from medloop.errors import InputError
from medloop.store.db import Store
from medloop.store.records import users


def logged_in(store: Store, name: str) -> users.User:
    """The user, after their password: two people cannot be one account."""
    password = str(typer.prompt(f"Password of {name}", hide_input=True))
    user = users.check_password(store, name, password)
    if user is None:
        raise InputError("Wrong user name or password", "'medloop users list' shows who can log in")
    if user.must_change:  # somebody else has chosen it, so it proves nothing
        raise InputError(f"{name} has not chosen a password yet", "Log in on the pages and choose one first")
    return user
