"""The bodies of one annotation: a rating, a correction or a choice, each under an id that follows from the annotation.

The records `base`, `base.2`, `base.3` are what one annotation said, oldest first; the last one counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from medloop.annotate.label_config import BogusResult, Verdict
from medloop.contracts import Correction, Feedback, Preference
from medloop.contracts.feedback import Purpose
from medloop.feedback.submit.bodies import CorrectionBody, FeedbackBody, PreferenceBody
from medloop.store.db import Store
from medloop.store.records import crud, imported
from medloop.store.records.annotation_tasks import AnnotatedItem

AGENT = "review-queue"  # of an answer that nobody logged, as on the pages

JudgementBody = FeedbackBody | CorrectionBody | PreferenceBody
CONTRACT: dict[str, type[Feedback] | type[Correction] | type[Preference]] = {
    "feedback": Feedback, "correction": Correction, "preference": Preference,
}  # fmt: skip

BODY: dict[str, type[JudgementBody]] = {"feedback": FeedbackBody, "correction": CorrectionBody, "preference": PreferenceBody}


@dataclass(frozen=True)
class AnnotationAuthor:
    user_id: str
    by_queue: bool


@dataclass(frozen=True)
class AnnotationRecords:
    store: Store
    item: AnnotatedItem
    base: str
    author: AnnotationAuthor
    consent: tuple[Purpose, ...]
    said: datetime | None
    first: str | None  # of two answers the one on the left

    def new_bodies(self, verdict: Verdict) -> list[tuple[str, JudgementBody]]:
        """What is not stored yet of this annotation, by kind."""
        if self.item.kind == "compare":
            wanted = [("preference", self.choice(verdict))]
        else:
            rated = verdict.rating is not None or verdict.harmful or (verdict.comment and not verdict.golden)
            wanted = [("feedback", self.rating(verdict))] if rated else []
            wanted += [("correction", self.correction(verdict))] if verdict.golden else []
        bodies = ((kind, self.body(kind, fields)) for kind, fields in wanted)
        return [(kind, body) for kind, body in bodies if body is not None]

    def rating(self, verdict: Verdict) -> dict[str, Any]:
        return {"rating": verdict.rating, "critical": bool(verdict.harmful), "comments": verdict.comment}

    def correction(self, verdict: Verdict) -> dict[str, Any]:
        return {"golden": verdict.golden, "reason": verdict.comment}

    def choice(self, verdict: Verdict) -> dict[str, Any]:
        first = self.first or "a"
        side = {"first": first, "second": "b" if first == "a" else "a", "tie": "tie", "both_bad": "both_bad"}
        critical = tuple(sorted(side[place] for place in verdict.harmful))
        return {"preferred": side[verdict.better or "tie"], "critical": critical, "comments": verdict.comment}

    def body(self, kind: str, says: dict[str, Any]) -> JudgementBody | None:
        """A new record, one that supersedes what the annotation said before, or None where nothing is new."""
        base = f"{kind[:1]}ls-{self.base}"
        before = imported.versions_of(self.store, CONTRACT[kind], [base]).get(base, [])
        if not before and imported.stored_ids(self.store, CONTRACT[kind], [base]):
            return None  # it was erased here
        if before and all(_same(getattr(before[-1], name), value) for name, value in says.items()):
            return None
        number = f"{base}.{len(before) + 1}" if before else base
        shared = {
            f"{kind}_id": number, "consent": self.consent, "timestamp": self.said,
            "supersedes": crud.id_of(before[-1]) if before else None,
        }  # fmt: skip
        fields = {**self.exchange(kind), **says, **shared}
        try:
            return BODY[kind].model_validate({name: value for name, value in fields.items() if value is not None})
        except ValidationError:
            raise BogusResult("not_accepted") from None

    def newest(self, kind: str) -> str | None:
        """The id of what this annotation said last, as it is stored."""
        base = f"{kind[:1]}ls-{self.base}"
        before = imported.versions_of(self.store, CONTRACT[kind], [base]).get(base, [])
        return crud.id_of(before[-1]) if before else None

    def exchange(self, kind: str) -> dict[str, Any]:
        """A trace by its id, else the texts as they were shown."""
        content, trace = self.item.content, self.item.trace_id
        question, *answers = content.exchange
        if kind == "preference":
            texts = {"prompt": question, "response_a": answers[0], "response_b": answers[1], "shown_first": self.first}
            models = (*content.models, None, None)
            return {**texts, "model_a": models[0], "model_b": models[1], "trace_id": trace}
        if trace is not None:
            return {"trace_id": trace}
        if kind == "correction":
            return {"prompt": question, "original": answers[0]}
        model = content.models[0] if content.models else None
        names = {"session_id": self.item.item_id, "agent_name": AGENT, "model_version": model}
        return {**names, "user_query": question, "agent_response": answers[0]}


def _same(stored: Any, said: Any) -> bool:
    return (stored or None) == (said or None)
