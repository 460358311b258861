"""What a critical flag adds to a judgement: an incident, and a red-team case if the question is known, for each flagged answer.

An incident outlives the undo of its flag. So an answer that its rater flags, takes back and flags again has one incident: it
goes on with the new record, and the audit log has both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from medloop.contracts import AuditEvent, Contract, Feedback, Incident, Preference, RedTeamCase
from medloop.lexicon.language import detect_language
from medloop.store.db import Store
from medloop.store.records import crud
from medloop.store.records.withdrawals import flag_again, open_after_undo

FlaggedAnswer = tuple[str, str, str | None]  # question, answer, model


@dataclass(frozen=True)
class CriticalFlags:
    """What the flags of one record open, and the cases of incidents that go on with it."""

    store: Store
    record_id: str
    sender: str
    reason: str | None = None
    opened: tuple[Contract, ...] = ()
    continued: tuple[RedTeamCase, ...] = ()

    @property
    def incident_ids(self) -> list[str]:
        own = [record.incident_id for record in self.opened if isinstance(record, Incident)]
        return [*own, *(case.incident_id for case in self.continued if case.incident_id is not None)]

    @property
    def events(self) -> tuple[AuditEvent, ...]:
        detail: dict[str, str | int | float | bool] = {"record": self.record_id}
        cases = (case for case in self.continued if case.incident_id is not None)
        return tuple(
            AuditEvent(actor=self.sender, action="incidents.flag_again", subject=str(case.incident_id), detail=detail)
            for case in cases
        )

    @property
    def update(self) -> Callable[..., None] | None:
        """What changes in the rows of incidents that go on."""
        new = {"record_id": self.record_id, "reason": self.reason}
        cases = [case.model_copy(update=new) for case in self.continued]
        return partial(flag_again, store=self.store, cases=cases) if cases else None


def flagged_answers(record: Contract) -> list[FlaggedAnswer]:
    """Question, answer and model of each answer that somebody says could harm a patient."""
    if isinstance(record, Feedback):
        return [(record.user_query, record.agent_response, record.model_version)] if record.critical else []
    if not isinstance(record, Preference):
        return []
    answers = {"a": (record.response_a, record.model_a), "b": (record.response_b, record.model_b)}
    return [(record.prompt, *answers[side]) for side in sorted(record.critical)]


def critical_flags(store: Store, record: Contract, sender: str, reported: Sequence[FlaggedAnswer]) -> CriticalFlags:
    """`reported` are the answers that the record before it has flagged."""
    record_id, flagged = crud.id_of(record), [answer for answer in flagged_answers(record) if answer not in reported]
    if not flagged:
        return CriticalFlags(store, record_id, sender)
    assert isinstance(record, Feedback | Preference), "only judgements flag an answer"
    earlier = {(case.prompt, case.answer, model): case for case, model in open_after_undo(store, sender)}
    opened: list[Contract] = []
    for question, answer, model in flagged:
        if (question, answer, model) in earlier:
            continue
        incident = Incident(record_id=record_id, model_version=model, opened_by=sender, language=detect_language(question))
        opened.append(incident)
        if question:
            case = RedTeamCase(
                record_id=record_id, incident_id=incident.incident_id, prompt=question, answer=answer, reason=record.comments
            )
            opened.append(case)
    continued = tuple(earlier[answer] for answer in flagged if answer in earlier)
    return CriticalFlags(store, record_id, sender, record.comments, tuple(opened), continued)
