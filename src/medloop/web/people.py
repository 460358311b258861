"""The name of whoever is behind an id: people are shown by name, never by id."""

from medloop.store.db import Store
from medloop.store.records import users
from medloop.web.words import Translator

COMMAND_LINE = ("user:", "uid:")  # how store/audit_trail.py writes somebody who uses the command line


class People:
    """`who(user_id)` in a template."""

    def __init__(self, store: Store, t: Translator) -> None:
        self.names, self.t = users.names(store), t

    def __call__(self, person: object) -> str:
        text = str(person or "")
        if text.startswith(COMMAND_LINE):
            return self.t("person_command_line", name=text.partition(":")[2])
        return self.names.get(text, text) or "–"

    def id_of(self, name: str) -> str:
        """The id of a user by name; anything else as it is, because a program or a record can be looked up too."""
        return next((user_id for user_id, known in self.names.items() if known == name), name)
