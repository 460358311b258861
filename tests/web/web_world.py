"""What the web tests share: texts, makers of items and traces, a client that sends forms as a page would."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape

from fastapi.testclient import TestClient

from medloop.contracts import Conversation, Message, Trace
from medloop.contracts.queue import QueueContent, QueueItem

PASSWORD = "correct horse battery"
QUESTION = "I have had crushing chest pain for an hour. What should I do?"
BAD, GOOD = "Drink some tea and rest.", "Call an ambulance now. Do not drive yourself."
HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')
FORM = re.compile(r'<form method="post" action="(/web/(?:rate|compare|correct))".*?</form>', re.S)


def prompt_of(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def item(kind: str, question: str, *answers: str, raters: int = 2, **more) -> QueueItem:
    content = QueueContent(prompt=prompt_of(question), answers=answers)
    return QueueItem(kind=kind, content=content, priority=0.5, reasons={"risk": 0.5}, raters=raters, **more)


def trace(answer: str, question: str = QUESTION, **more) -> Trace:
    talk = Conversation(messages=(*prompt_of(question), Message(role="assistant", content=answer)))
    return Trace(**{"session_id": "s1", "agent_name": "triage", "model_version": "clinic@3", "conversation": talk} | more)


@dataclass
class Browser:
    """A session in a browser that runs no scripts."""

    client: TestClient

    def get(self, path: str, **more):
        return self.client.get(path, **more)

    def csrf(self) -> str:
        return dict(HIDDEN.findall(self.get("/web/").text)).get("csrf", "")

    def post(self, path: str, follow: bool = True, **fields: str):
        return self.client.post(path, data={"csrf": self.csrf(), **fields}, follow_redirects=follow)

    def fill_in(self, path: str, **fields: str):
        """Open a page and send its form with these fields and the hidden ones."""
        return self.send(self.get(path).text, **fields)

    def send(self, page: str, **fields: str):
        form = FORM.search(page)
        assert form, page
        hidden = {name: unescape(value) for name, value in HIDDEN.findall(form[0])}
        return self.client.post(form[1], data={**hidden, **fields}, follow_redirects=True)
