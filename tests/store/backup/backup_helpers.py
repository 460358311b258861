"""What the tests of backups share: the command line as a call, a rating, and the settings of a restored workspace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from medloop.contracts import Feedback
from medloop.settings import Settings

Run = Callable[..., Any]  # `command_line` of tests/conftest.py
SECRET = "the quick brown fox had a headache for three days and a fever of 39.4 since Tuesday night"


def rating(name: str, **more: object) -> Feedback:
    given = {"session_id": "s", "agent_name": "a", "user_query": f"canary of {name}", "agent_response": "r", "rating": 3}
    return Feedback(feedback_id=name, **given | more)


def restored(home: Path) -> Settings:
    return Settings(home=home, database={"url": os.environ.get("MEDLOOP_DATABASE__URL", "")})
