"""People with keys who call the API, over HTTP and on both databases."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

from medloop.data.feedback.build import FeedbackConfig
from medloop.loop.feedback import build_from_feedback
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.files import jsonl
from medloop.store.records import users

ROLES = {
    "ann": "annotator", "ben": "annotator", "dr-wu": "clinician", "dr-li": "clinician", "dr-xu": "clinician", "bot": "engineer",
    "root": "admin",
}  # fmt: skip
GOOD, HARMFUL = "See a doctor today.", "Drink bleach."
QUESTION = "Since last spring my knee throbs whenever I climb stairs, what helps against it?"
CHOICE = {"prompt": QUESTION, "response_a": GOOD, "response_b": HARMFUL, "consent": ["training"]}


class Clinic:
    """People who call the API, each with their own key."""

    def __init__(self, settings: Settings, store: Store, client: TestClient) -> None:
        self.settings, self.store, self.client = settings, store, client
        self.users = {name: users.add_user(store, name, role, actor="t") for name, role in ROLES.items()}
        self.keys = {name: users.new_key(store, user, actor="t") for name, user in self.users.items()}

    def call(self, name: str, method: str, path: str, **body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.keys[name]}"}
        return self.client.request(method, f"/api/v1{path}", headers=headers, json=body or None)

    def sent(self, name: str, kind: str, **body: Any) -> str:
        answer = self.call(name, "POST", f"/rlhf/{kind}", **body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()[f"{kind}_id"])

    def trace(self, question: str = QUESTION, answer: str = GOOD) -> str:
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        body = {"session_id": "s1", "agent_name": "triage", "model_version": "m@1", "messages": turns}
        return str(self.call("bot", "POST", "/traces", **body).json()["trace_id"])

    def pairs(self) -> list[dict[str, Any]]:
        build_from_feedback(self.store, FeedbackConfig(test_share=0), seed=7, actor="t")
        return list(jsonl.read(self.settings.workspace.preferences / "preferences.jsonl"))

    def built(self, name: str) -> list[dict[str, Any]]:
        """A file of the dataset that `pairs` has built."""
        return list(jsonl.read(self.settings.workspace.home / "data/feedback/feedback" / name))
