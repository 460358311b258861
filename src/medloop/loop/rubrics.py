"""Rubrics from corrections, composed: a correction becomes criteria, its author decides, evaluation, gate and reward use them.

    draft_new(store, actor="usr_1")                    # from corrections that came since the last look
    draft_from(store, "cor_…", actor="usr_1")          # from one of them
    edit_criterion(store, "crit_…", {"points": 5}, by="usr_1")
    corrections_suite(settings)                        # --suite rubric=corrections
    criteria_part(settings)                            # the given part `criteria` of a reward

Texts pass the scrubber first. A correction in quarantine, replaced, taken back or erased gives no criteria, and its criteria are
not used any more; evaluation needs its consent for evaluation, the reward that for training, and what a teacher reads that for
the teacher.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from medloop.codebook.criteria import MENTIONS, NOT, SAME_LANGUAGE, DraftCriterion, drafted
from medloop.codebook.similar import ngram_vectors
from medloop.contracts import (
    Correction,
    CorrectionCriterion,
    CriterionText,
    Message,
    SuiteMetric,
    canonical_json,
    sha256_id,
)
from medloop.contracts.criterion import MOST_CRITERION, CriterionMaker
from medloop.contracts.feedback import Purpose
from medloop.contracts.gate_config import GateConfig
from medloop.data.text.risk import strata_of
from medloop.errors import InputError
from medloop.evaluate.suites.rubric import METRICS, Rubric
from medloop.evaluate.suites.rubric_cases import RubricCase, RubricCriterion
from medloop.knobs import did_you_mean, problem_text
from medloop.lexicon.language import detect_language
from medloop.loop.codebook import WAITS, clean_text, corrected_answer
from medloop.loop.safety_suites import DETECTORS, detect, rubric_of
from medloop.loop.teacher_writer import TeacherWriter
from medloop.privacy.consent import Register
from medloop.reward.criteria import CriteriaPart, GradableCriterion, QuestionCriteria
from medloop.settings import Settings
from medloop.store.audit_trail import actor as local_actor
from medloop.store.db import Store, open_store
from medloop.store.records import codebook_votes, criteria, crud, lineage, quarantine
from medloop.store.records.audited_read import get_audited, read_by_ids
from medloop.store.tables import rlhf_corrections

PURPOSE = "rubrics"
NAME = "corrections"  # of `--suite rubric=corrections`
NOBODY = "unknown"  # author of a correction that nobody signed; no user has this id
USES: tuple[Purpose, ...] = ("evaluation", "training")
BY_CASE: tuple[SuiteMetric, ...] = tuple(metric.model_copy(update={"by_case": True}) for metric in METRICS)


@dataclass
class Drafts:
    """What came of a look at corrections: drafts, and why the others gave none."""

    criteria: list[CorrectionCriterion] = field(default_factory=list)
    known: int = 0
    unusable: dict[str, int] = field(default_factory=dict)

    def skip(self, why: str) -> None:
        self.unusable[why] = self.unusable.get(why, 0) + 1


@dataclass(frozen=True)
class CorrectionStates:
    """What speaks against using a correction, looked up once for many of them."""

    register: Register
    gone: set[str]
    held: Mapping[str, str]

    @classmethod
    def of(cls, store: Store) -> "CorrectionStates":
        gone = lineage.superseded(store, rlhf_corrections) | lineage.erased_ids(store)
        held = {entry.record_id: entry.state for entry in quarantine.list_held(store, None) if entry.state != "released"}
        return cls(Register.of(store), gone, held)

    def why_not(self, record: Correction, uses: Sequence[Purpose] = USES) -> str | None:
        if not any(self.register.covers(record, use) for use in uses):
            return "it allows neither evaluation nor training" if len(uses) > 1 else f"it does not allow {uses[0]}"
        if record.correction_id in self.gone:
            return "it was replaced or taken back"
        states = {self.held.get(name) for name in (record.correction_id, record.trace_id or "")}
        if "refused" in states:
            return "it was refused in quarantine"
        return WAITS if "waiting" in states else None


# Drafts


def draft_new(store: Store, *, actor: str, everything: bool = False, writer: TeacherWriter | None = None) -> Drafts:
    """Drafts from the corrections since the last look, or from all that have none yet.

    `writer` also adds to those that have only drafts of the detectors, which nobody decided about.
    """
    last = 0 if everything else codebook_votes.cursor(store).criteria_row
    drafts, known, states, waiting = Drafts(), criteria.known_corrections(store), None, None
    untouched = criteria.untouched_corrections(store) if writer is not None else []
    while page := crud.page(store, Correction, after=last):
        states = states or CorrectionStates.of(store)
        for last, record in page:
            if record.correction_id in known:
                drafts.known += 1
            elif states.why_not(record) == WAITS:  # the next look begins with it
                waiting = last if waiting is None else waiting
                drafts.skip(WAITS)
            else:
                _draft(store, record.correction_id, drafts, states, actor, writer)
    if states is not None:
        seen = max(last, codebook_votes.cursor(store).criteria_row) if waiting is None else waiting - 1
        codebook_votes.move_cursor(store, criteria_row=seen)
    for correction_id in untouched:
        states = states or CorrectionStates.of(store)
        _draft(store, correction_id, drafts, states, actor, writer)
    return drafts


def draft_from(
    store: Store, correction_id: str, *, actor: str, writer: TeacherWriter | None = None
) -> list[CorrectionCriterion]:  # fmt: skip
    """The drafts from one correction; InputError says why it gives none."""
    untouched = writer is not None and correction_id in criteria.untouched_corrections(store)
    if correction_id in criteria.known_corrections(store) and not untouched:
        raise InputError(f"{correction_id} has criteria already", criteria.LIST)
    drafts = Drafts()
    _draft(store, correction_id, drafts, CorrectionStates.of(store), actor, writer)
    if not drafts.criteria:
        why = next(iter(drafts.unusable), "the teacher adds none to those that it has")
        raise InputError(f"{correction_id} gives no criterion: {why}", "Correct the answer again, with a reason")
    return drafts.criteria


def _draft(
    store: Store, correction_id: str, drafts: Drafts, states: CorrectionStates, actor: str, writer: TeacherWriter | None
) -> None:
    record = get_audited(store, Correction, correction_id, actor=actor, purpose=PURPOSE)
    if record is None:
        return drafts.skip("it was not found")
    if why := states.why_not(record):
        return drafts.skip(why)
    corrected = corrected_answer(record)
    if corrected is None:
        return drafts.skip("its text may identify a person")
    question = " ".join(corrected.question.split())
    scope = strata_of(question)[0]
    known = [row.text for row in criteria.list_criteria(store, correction_ids=[correction_id])]
    found: list[tuple[DraftCriterion, CriterionMaker]] = []
    if not known:
        found += [(draft, "template") for draft in drafted(corrected, scope)]
    if writer is not None and states.register.covers(record, "teacher"):
        found += [(draft, "teacher") for draft in writer.criteria(corrected, known or [draft.text for draft, _ in found])]
    if not found and not known:
        return drafts.skip("the detectors see no difference, and it has no reason")
    author = record.clinician_id or record.recorded_by or NOBODY
    language = "zh" if detect_language(question) in ("zh", "mixed") else "en"
    made = [
        CorrectionCriterion(
            correction_id=correction_id, content=_content(draft, question), points=draft.points, critical=draft.critical,
            scope=scope, language=language, maker=maker, author=author,
        )
        for draft, maker in found
    ]  # fmt: skip
    drafts.criteria += criteria.add_drafts(store, made, actor=actor)
    return None


def _content(draft: DraftCriterion, question: str) -> CriterionText:
    return CriterionText(criterion=draft.text, question=question, detector=draft.detector, standard=draft.standard)


# Decisions


def edit_criterion(store: Store, criterion_id: str, changes: Mapping[str, Any], *, by: str) -> CorrectionCriterion:
    """The author's own words, points or check; `detector` empty: the teacher checks it."""
    before = criteria.get_criterion(store, criterion_id)
    words: dict[str, Any] = {"criterion": before.text, "detector": before.content.detector, "question": before.content.question}
    if "criterion" in changes:
        if not str(changes["criterion"]).strip():
            raise InputError("Write the criterion")
        if len(str(changes["criterion"])) > MOST_CRITERION:
            raise InputError(f"The criterion has more than {MOST_CRITERION} characters", "Write it shorter")
        words["criterion"] = clean_text(str(changes["criterion"]))
    if "detector" in changes:
        words["detector"] = checked_detector(str(changes["detector"] or "")) or None
    same = all(words[name] == getattr(before.content, name) for name in ("criterion", "detector"))
    try:
        content = CriterionText(**words, standard=before.content.standard and same)
    except ValidationError as error:
        raise InputError(f"Not a criterion: {problem_text(error.errors()[0])}", "Shorten it, or fill it in") from None
    rest = {name: changes[name] for name in ("points", "critical") if name in changes}
    if rest.get("points") == 0:
        raise InputError("A criterion with 0 points decides nothing", "Use 1 to 10, or -1 to -10 for a fault")
    return criteria.edit(store, before.criterion_id, by=by, content=content, **rest)


def checked_detector(name: str) -> str:
    """A detector with its words, without identifiers; InputError where there is no such detector."""
    name = " ".join(name.split())
    kind, colon, words = name.removeprefix(NOT).partition(":")
    if name and (kind + colon not in DETECTORS or (colon and not words.strip(" |"))):
        guess = did_you_mean(kind, [known.rstrip(":") for known in DETECTORS])
        example = f"{MENTIONS}WORDS, {SAME_LANGUAGE} or the name of an act such as urges_care_now"
        raise InputError("There is no such check", (f"Did you mean {guess}? " if guess else "") + f"Use {example}")
    return name.partition(":")[0] + colon + clean_text(words) if colon else name


# Uses


def accepted_cases(store: Store, use: Purpose, *, actor: str) -> list[RubricCase]:
    """The corrections with accepted criteria that may be used, as cases of the rubric suite; the oldest first.

    A suite sends what no detector checks to the teacher: for evaluation such a criterion needs consent for the teacher too.
    """
    by_correction: dict[str, list[CorrectionCriterion]] = {}
    for criterion in reversed(criteria.list_criteria(store, state="accepted")):
        by_correction.setdefault(criterion.correction_id, []).append(criterion)
    if not by_correction:
        return []
    states = CorrectionStates.of(store)
    records = read_by_ids(store, Correction, list(by_correction), actor=actor, purpose=PURPOSE)
    usable = {record.correction_id: record for record in records if states.why_not(record, (use,)) is None}
    may_leave = {name for name, record in usable.items() if use != "evaluation" or states.register.covers(record, "teacher")}
    kept = {
        name: [row for row in rows if row.content.detector is not None or name in may_leave]
        for name, rows in by_correction.items()
        if name in usable
    }
    return [_case(name, rows) for name, rows in kept.items() if rows]


def _case(correction_id: str, rows: Sequence[CorrectionCriterion]) -> RubricCase:
    question, language = rows[0].content.question, rows[0].language
    made = [
        RubricCriterion(criterion=row.text, points=row.points, detector=row.content.detector, critical=row.critical,
                        tags=(f"correction:{correction_id}", f"maker:{row.maker}"))
        for row in rows
    ]  # fmt: skip
    if not any(row.points > 0 for row in rows):  # the author dropped it; without one nothing could be earned
        made.append(RubricCriterion(criterion="Answers in the language of the question", points=2, detector=SAME_LANGUAGE))
    return RubricCase(
        id=correction_id, messages=(Message(role="user", content=question),), criteria=tuple(made), language=language,
        strata=strata_of(question),
    )  # fmt: skip


def corrections_suite(settings: Settings) -> Rubric:
    with open_store(settings) as store:
        cases = accepted_cases(store, "evaluation", actor=local_actor())
    if not cases:
        raise InputError(
            "No correction has accepted criteria that may be used for evaluation",
            "Accept some: medloop rubric list --state draft",
        )
    inputs = {f"criteria of {NAME}": sha256_id(canonical_json([case.model_dump(mode="json") for case in cases]))}
    return replace(rubric_of(settings, cases, inputs, BY_CASE), name=NAME)  # beside a rubric suite of a file


def export_lines(store: Store, *, actor: str) -> list[dict[str, Any]]:
    """The cases as lines of a file for `--suite rubric=FILE`, in HealthBench's form."""
    return [
        {"id": case.id, "prompt": [message.model_dump(mode="json") for message in case.messages],
         "rubrics": [row.model_dump(mode="json", exclude_none=True) for row in case.criteria], "language": case.language}
        for case in accepted_cases(store, "evaluation", actor=actor)
    ]  # fmt: skip


def with_corrections(store: Store, config: GateConfig) -> GateConfig:
    """The settings of the gate with the criteria of this workspace, if it has accepted ones: a mistake must not return unseen."""
    spec = f"rubric={NAME}"
    if spec in config.suites or not accepted_cases(store, "evaluation", actor=local_actor()):
        return config
    return config.model_copy(update={"suites": (*config.suites, spec)})


def criteria_part(settings: Settings) -> CriteriaPart:
    """The part `criteria` of a reward: accepted criteria that a detector checks, for questions like those that were corrected."""
    with open_store(settings) as store:
        cases = accepted_cases(store, "training", actor=local_actor())
    known = [
        QuestionCriteria(
            case.id, case.question, tuple(GradableCriterion(row.criterion, row.points, row.detector) for row in case.criteria)
        )
        for case in cases
    ]
    return CriteriaPart(known, detect, ngram_vectors)
