"""The name of whoever is behind an id: people are shown by name, never by id; and what a rater's vote weighs."""

import time

from fastapi import Request

from medloop.api.deps import store_of
from medloop.feedback.insight.skill import RaterSkill, measure_skill
from medloop.store.db import Store
from medloop.store.records import users
from medloop.web.words import Translator

COMMAND_LINE = ("user:", "uid:")  # how store/audit_trail.py writes somebody who uses the command line


CACHE_S = 60.0


def skills_of(request: Request) -> dict[str, RaterSkill]:
    """What each rater's vote weighs, by user id. It reads the numbers of all records, so it is cached for a minute."""
    measured_at, skills = getattr(request.app.state, "skills_cache", (0.0, None))
    if skills is None or time.monotonic() - measured_at > CACHE_S:
        skills = measure_skill(store_of(request))
        request.app.state.skills_cache = (time.monotonic(), skills)
    known: dict[str, RaterSkill] = skills
    return known


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
