"""The words of the pages: each said in both languages with the same slots, each used, none missing."""

import re
from pathlib import Path

import pytest

from medloop.feedback.review.queue import WEIGHTS
from medloop.store.records.users import ROLES
from medloop.web import render
from medloop.web.forms import AXES
from medloop.web.words import SLOT, Words, table

WEB = Path(render.__file__).parent
SOURCES = [*WEB.glob("templates/*.html"), *WEB.rglob("*.py")]
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
# Keys that are put together from a name: what they start with.
MADE = (
    "role_",
    "role_is_",
    "nav_",
    "card_",
    "kind_",
    "said_",
    "fate_",
    "axis_",
    "incident_",
    "reason_",
    "agreement_",
    "consent_",
    "error_",
    "thanks_",
    "review_because_",
    "review_done_",
    "review_release",
    "review_refuse",
    "state_",
    "held_",
    "part_",
    "phi_",
    "doubt_",
)


@pytest.mark.parametrize("key", table())
def test_a_sentence_is_said_in_both_languages_and_used(key):
    en, zh = table()[key]
    assert en and zh and sorted(SLOT.findall(en)) == sorted(SLOT.findall(zh))
    plain = re.search(rf"""["']{key}["']""", TEXT)
    assert plain or key.startswith(MADE) or re.fullmatch(r"(rate|compare|correct)_title|(question|answer)_needed", key), (
        f"{key} is not used"
    )


def test_every_sentence_that_a_page_asks_for_is_there():
    asked = set(re.findall(r"""\bt\(["']([a-z0-9_]+)["'](?! ~)""", TEXT))
    assert len(asked) > 100 and not asked - set(table())
    reasons = {*WEIGHTS, "teaches", "explore"}
    names = [f"reason_{name}" for name in reasons] + [f"role_is_{role}" for role in ROLES] + [f"axis_{axis}" for axis in AXES]
    names += [f"{kind}_{name}" for name in render.MENU for kind in ("nav", "card")] + [
        f"card_{name}_text" for name in render.MENU
    ]
    assert set(names) <= set(table())


def test_what_is_filled_in_is_not_looked_into():
    assert Words("en")("hello", name="{role} {0.__class__}") == "Hello, {role} {0.__class__}"
    assert Words("zh").or_plain("axis_made up", "made up") == "made up"
