"""The name of whoever is behind an id: people are shown by name, never by id; and what a rater's vote weighs."""

import threading
import time
from contextlib import suppress

from fastapi import Request

from medloop.api.deps import store_of
from medloop.errors import MedloopError
from medloop.feedback.insight.skill import RaterSkill, measure_skill
from medloop.store.db import Store
from medloop.store.records import users
from medloop.web.words import Translator

COMMAND_LINE = ("user:", "uid:")  # how store/audit_trail.py writes somebody who uses the command line


CACHE_S = 60.0


class SkillCache:
    """What each rater's vote weighs, by user id; kept for a minute, because measuring reads the numbers of all records."""

    def __init__(self, store: Store) -> None:
        self.store, self.skills, self.measured_at = store, dict[str, RaterSkill](), 0.0
        self._measuring = threading.Lock()

    def measured(self) -> dict[str, RaterSkill]:
        """Measured now, or a moment ago."""
        with self._measuring:
            if self._is_old():
                self.skills, self.measured_at = measure_skill(self.store), time.monotonic()
        return self.skills

    def last(self) -> dict[str, RaterSkill]:
        """What was measured last, maybe nothing yet: nobody waits, and a new measurement begins if this one is old."""
        if self._is_old() and not self._measuring.locked():
            threading.Thread(target=self._measure_quietly, name="rater-skill", daemon=True).start()
        return self.skills

    def _measure_quietly(self) -> None:
        with suppress(MedloopError):  # the database is busy, or the server stops
            self.measured()

    def _is_old(self) -> bool:
        return not self.measured_at or time.monotonic() - self.measured_at > CACHE_S


def skills_of(request: Request) -> SkillCache:
    state = request.app.state
    if not hasattr(state, "skills"):
        state.skills = SkillCache(store_of(request))
    cache: SkillCache = state.skills
    return cache


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
