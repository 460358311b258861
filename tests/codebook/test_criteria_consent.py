"""What may leave for the teacher, who may decide, and what a look at corrections must not miss."""

import pytest
from tests.codebook.conftest import CALM, URGENT, correction

from medloop.codebook.criteria import DraftCriterion
from medloop.contracts import EntryText
from medloop.loop.codebook import propose_from, propose_new
from medloop.loop.codebook_growth import propose_prompt
from medloop.loop.rubrics import accepted_cases, draft_from, draft_new, edit_criterion
from medloop.privacy import consent
from medloop.store.records import criteria, quarantine

PATIENT = "patient 4711"
EVERYTHING = ("training", "evaluation", "teacher")


class Writer:
    """A teacher that notes what it was shown."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def criteria(self, corrected, known):
        self.seen.append(corrected.question)
        return [DraftCriterion("说明要记下发病时间", 4.0)]

    def rule(self, corrected):
        self.seen.append(corrected.question)

    def prompt(self, current, corrections):
        self.seen += [one.question for one in corrections]
        return EntryText(text="Send signs of a stroke to emergency care first.")


def test_a_patient_who_took_back_the_teacher_is_not_shown_to_it(store, people):
    writer, subject = Writer(), consent.subject_of(store, PATIENT)
    source = correction(store, consent=EVERYTHING, subject=subject, recorded_by=people["dr.li"])
    consent.record(store, PATIENT, ("teacher",), granted=False, text_version="1", actor="test")
    assert draft_from(store, source, actor="test", writer=writer)
    propose_from(store, source, actor="test", reflector=writer.rule)
    propose_prompt(store, actor="test", author=people["dr.li"], writer=writer.prompt)
    assert writer.seen == []


def test_a_criterion_without_a_check_is_evaluated_only_where_the_teacher_may_read_it(store, people):
    subject = consent.subject_of(store, PATIENT)
    for given in (("evaluation",), ("evaluation", "teacher")):
        source = correction(store, consent=given, subject=subject, recorded_by=people["dr.li"])
        first, second, *_ = draft_from(store, source, actor="test")
        criteria.accept(store, first.criterion_id, by=people["dr.li"])
        edit_criterion(store, second.criterion_id, {"criterion": "记下时间", "detector": ""}, by=people["dr.li"])
    cases = accepted_cases(store, "evaluation", actor="test")
    assert [[row.detector is None for row in case.criteria].count(True) for case in cases] == [0, 1]
    consent.record(store, PATIENT, ("teacher",), granted=False, text_version="1", actor="test")
    cases = accepted_cases(store, "evaluation", actor="test")
    assert len(cases) == 2 and all(row.detector for case in cases for row in case.criteria)


def test_an_engineer_decides_about_no_criterion_and_a_clinician_stands_in(store, people):
    [row, *_] = draft_from(store, correction(store, recorded_by=people["sam"]), actor="test")
    with pytest.raises(criteria.CriterionPersonError, match="role"):
        criteria.accept(store, row.criterion_id, by=people["sam"])
    assert criteria.accept(store, row.criterion_id, by=people["dr.wu"]).state == "accepted"


def test_who_looks_for_drafts_is_not_their_author(store, people):
    correction(store)
    [row, *_] = draft_new(store, actor=people["dr.li"]).criteria
    assert row.author not in people.values()
    assert criteria.may_decide(store, row, people["dr.wu"])


def test_a_correction_in_quarantine_gets_its_turn_when_it_is_released(store, people):
    held = correction(store, recorded_by=people["dr.li"])
    later = correction(store, "胸口压着疼一小时了，怎么办？", CALM, URGENT, recorded_by=people["dr.li"])
    with store.write() as conn:
        quarantine.hold(conn, held, "rlhf_corrections", doubt=0.9, reasons=("name",), actor="test")
    assert {row.correction_id for row in draft_new(store, actor="test").criteria} == {later}
    assert {name for entry in propose_new(store, actor="test").entries for name in entry.evidence} == {later}
    again = draft_new(store, actor="test")
    assert not again.criteria and again.unusable == {"it waits in quarantine": 1}
    quarantine.decide(store, held, "released", reason="nobody", actor="test")
    assert {row.correction_id for row in draft_new(store, actor="test").criteria} == {held}
    assert held in {name for entry in propose_new(store, actor="test").entries for name in entry.evidence}
    assert draft_new(store, actor="test").known == 0, "now the look is past both"


def test_the_teacher_adds_to_drafts_that_nobody_touched_and_to_no_others(store, people):
    untouched = correction(store, consent=EVERYTHING, recorded_by=people["dr.li"])
    decided = correction(store, "胸口压着疼一小时了，怎么办？", CALM, URGENT, consent=EVERYTHING, recorded_by=people["dr.li"])
    rows = draft_new(store, actor="test").criteria
    criteria.accept(store, next(row.criterion_id for row in rows if row.correction_id == decided), by=people["dr.li"])
    writer = Writer()
    added = draft_new(store, actor="test", writer=writer).criteria
    assert [(row.correction_id, row.maker, row.author) for row in added] == [(untouched, "teacher", people["dr.li"])]
    assert not draft_new(store, actor="test", writer=writer).criteria and len(writer.seen) == 1
