"""A workspace with people, a correction in it, and a model that says what the test wants."""

from __future__ import annotations

import pytest

from medloop.contracts import Correction
from medloop.store.records import crud, users

STROKE = "我爸刚才嘴角突然歪了，说话也不清楚，怎么办？"
CALM = "可能是累了，休息一下就好，不用去医院。"
URGENT = "这可能是中风，请立即拨打120送急诊。不要喂水喂药。"


def correction(store, question: str = STROKE, original: str = CALM, golden: str = URGENT, **more) -> str:
    values = {"prompt": question, "original": original, "golden": golden, "consent": ("training", "evaluation")} | more
    record = Correction(**values)
    crud.add(store, [record], actor="test")
    return record.correction_id


@pytest.fixture
def people(store) -> dict[str, str]:
    roles = {"dr.li": "clinician", "dr.wu": "clinician", "dr.ma": "clinician", "sam": "engineer", "ada": "admin"}
    return {name: users.add_user(store, name, role, password=None, actor="test").user_id for name, role in roles.items()}


@pytest.fixture
def bad_model():
    """A model that calms everybody, whatever the prompt says."""
    return "test-model", lambda prompts: [CALM if "怎" in p[-1].content else "Rest and drink tea." for p in prompts]


@pytest.fixture
def settings(sqlite_settings):
    """SQLite alone: what the two databases do differently is tested with the other records."""
    return sqlite_settings
