"""Codebook: corrections that work at once, without training (the fast loop).

An entry is a rule, an example (question and good answer) or a system prompt. Every change of it is a new revision; the codebook
that is live is a list of revisions, and its hash stands in the snapshot of every answer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

from pydantic import Field, model_validator

from medloop.contracts.base import Contract, Hash, Text, Timestamp, utc_now, uuid7

EntryKind = Literal["rule", "example", "prompt"]
EntryState = Literal["proposed", "active", "retired", "refused"]
VersionAction = Literal["approve", "merge", "retire", "rollback", "promote"]
TrialVerdict = Literal["better", "same", "worse", "critical"]
CaseSource = Literal["triage", "red_team", "entry"]
LAY_MARK = "≈"  # in a trigger, before the name of a topic in everyday words
EVERY_SITE = "all"  # of an entry that holds wherever the assistant answers
MOST_RULE = 400  # characters of a rule; a longer one is an essay
MOST_TEXT = 4000  # characters of an example's answer or of a system prompt
MOST_SENTENCE = 240  # characters of a vetted first sentence
# What a rule can take out of an answer: acts that the detectors know ("/negated": the answer says that it is not needed), and
# sentences in another language than the question. No words or patterns of people.
ForbiddenAct = Literal[
    "reassures", "home_care", "gives_dose", "starts_medicine", "stops_medicine", "changes_medicine", "urges_care_now/negated",
    "sends_to_doctor/negated", "other_language",
]  # fmt: skip
# An approval needs a reason where at least so many ordinary answers lose more than this on average, and more than this share.
LEAST_ORDINARY, MOST_LOSS, MOST_LOST_SHARE = 3, 0.02, 0.1
FORBIDDEN_ACTS: tuple[ForbiddenAct, ...] = get_args(ForbiddenAct)


class CodebookRule(Contract):
    rule_id: Text = Field(default_factory=lambda: f"rule_{uuid7()}")
    text: Text
    scope: Text
    triggers: tuple[Text, ...] = ()
    evidence: tuple[Text, ...] = ()
    helpful: int = Field(0, ge=0)
    harmful: int = Field(0, ge=0)
    state: Literal["proposed", "active", "retired"] = "proposed"
    approver: Text | None = None
    expires: Timestamp | None = None
    supersedes: Text | None = None
    timestamp: Timestamp


class CodebookDelta(Contract):
    """A curator's change: add, edit or retire, with the reason."""

    action: Literal["add", "edit", "retire"]
    rule: CodebookRule
    reason: Text


class EntryText(Contract):
    """What people wrote in an entry; it is encrypted in the store.

    Every trigger must be in a question (`a|b`: one of them; `*`: every question fits). `question` is the one that the entry is
    from, without identifiers; `expects` are acts that a good answer to it has (`!` before one: must not have). Sentences that
    do what `forbids` names are taken out of answers; `answers` are the experts' answers to the lines of `question`, which stand
    where nothing else is left.
    """

    text: Text
    triggers: tuple[Text, ...] = ()
    first_sentence: str = Field("", max_length=MOST_SENTENCE)
    question: str = ""
    expects: tuple[Text, ...] = ()
    reason: str = ""
    forbids: tuple[ForbiddenAct, ...] = ()
    answers: tuple[str, ...] = ()


class CodebookEntry(Contract):
    """One revision of an entry. `evidence` are the records it comes from; `supersedes` the entries that it replaces."""

    revision_id: Text = Field(default_factory=lambda: f"cbr_{uuid7()}")
    entry_id: Text = Field(default_factory=lambda: f"rule_{uuid7()}")
    revision: int = Field(1, ge=1)
    kind: EntryKind = "rule"
    scope: Text = "routine"
    language: Text = "en"
    site: Text = Field(EVERY_SITE, description="The site whose answers it changes; all: those of every site.")
    state: EntryState = "proposed"
    content: EntryText
    evidence: tuple[Text, ...] = ()
    supersedes: tuple[Text, ...] = ()
    author: Text
    approver: Text | None = None
    second: Text | None = Field(None, description="Who agreed to an approval against the trial or a conflict.")
    override: str | None = Field(None, description="Why somebody wants it although its trial or a conflict speaks against it.")
    approved: Timestamp | None = None
    expires: Timestamp | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)

    @model_validator(mode="after")
    def _fits(self) -> CodebookEntry:
        most = MOST_RULE if self.kind == "rule" else MOST_TEXT
        if len(self.content.text) > most:
            raise ValueError(f"the text of a {self.kind} has at most {most} characters")
        if self.kind == "example" and not self.content.question:
            raise ValueError("an example needs its question")
        return self

    @property
    def text(self) -> str:
        return self.content.text

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now

    @property
    def words_sha256(self) -> str:
        """The hash of what can change an answer; counters, people and times cannot."""
        words = self.content.model_dump(exclude={"reason", "expects"})
        words |= {name: words[name] or None for name in ("forbids", "answers")}  # an entry without them keeps its hash
        return EntryWords(entry_id=self.entry_id, kind=self.kind, **words).content_id()


class EntryWords(Contract):
    """What of an entry can change an answer."""

    entry_id: Text
    kind: EntryKind
    text: Text
    triggers: tuple[Text, ...]
    first_sentence: str
    question: str
    forbids: tuple[ForbiddenAct, ...] | None = None
    answers: tuple[str, ...] | None = None


class CodebookVersion(Contract):
    """A state of the codebook: the revisions that are live, why it came to be, and who decided."""

    version: int = Field(ge=0)
    sha256: Hash
    revisions: tuple[Text, ...] = ()
    action: VersionAction = "approve"
    entry_id: Text | None = None
    actor: Text = "medloop"
    reason: str = ""
    trial_id: Text | None = None
    timestamp: Timestamp = Field(default_factory=utc_now)


class TrialCase(Contract):
    """One question of the regression set before and after a change; ids and outcomes, never a text."""

    case_id: Text
    source: CaseSource
    critical: bool
    before: bool
    after: bool
    quality: tuple[float, float] | None = Field(None, description="Of an ordinary answer, 0 to 1, before and after.")


class CodebookTrial(Contract):
    """A change tried on the regression set. `cases` are those whose prompt it changes; the others cannot change."""

    trial_id: Text = Field(default_factory=lambda: f"try_{uuid7()}")
    revision_id: Text
    codebook: Hash
    model: Text
    version: str = Field("", description="The hash of what read the answers and of the regression set; older trials have none.")
    verdict: TrialVerdict
    cases: tuple[TrialCase, ...] = ()
    unchanged: int = Field(0, ge=0)
    actor: Text = "medloop"
    timestamp: Timestamp = Field(default_factory=utc_now)

    def count(self, *, before: bool, after: bool) -> int:
        return sum(case.before is before and case.after is after for case in self.cases)

    @property
    def reached(self) -> int:
        """Questions that no rule comes from and whose prompt or answer changes."""
        return sum(case.source != "entry" for case in self.cases)

    @property
    def ordinary(self) -> int:
        """Ordinary questions among them, whose answers are read for their quality."""
        return sum(case.quality is not None for case in self.cases)

    @property
    def quality_change(self) -> float:
        """The mean change of the quality of ordinary answers that the change reaches."""
        changes = [case.quality[1] - case.quality[0] for case in self.cases if case.quality is not None]
        return sum(changes) / len(changes) if changes else 0.0

    @property
    def lowers_quality(self) -> bool:
        before = [case.quality[0] for case in self.cases if case.quality is not None]
        if len(before) < LEAST_ORDINARY:
            return False
        return self.quality_change < -max(MOST_LOSS, MOST_LOST_SHARE * sum(before) / len(before))
