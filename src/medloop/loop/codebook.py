"""The codebook, composed: corrections become proposals, proposals become rules of the next answer.

    rules_for(store)                                      # FindRules of the assistant; reads a changed codebook by itself
    propose_new(store, actor="usr_1")                     # from corrections that came since the last look
    propose_from(store, "cor_…", actor="usr_1")           # from one of them
    draft_edit(store, entry, {"text": "…"}, actor=…)      # a new revision, which waits for approval like any other

Texts pass the scrubber first; a correction that waits in quarantine, was erased, replaced or taken back, or that does not allow
training gives no rule. The audit log has the reading.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from medloop.codebook.curate import Placement, conflicts, may_meet, merged, place
from medloop.codebook.reflect import CorrectedAnswer, reflect
from medloop.codebook.retrieve import RetrieveConfig, Retriever
from medloop.codebook.similar import Embed
from medloop.contracts import CodebookEntry, CodebookRule, Correction, EntryText, Feedback, RulesFound, utc_now
from medloop.contracts.experiment import DEFAULT_SITE
from medloop.contracts.rule import EVERY_SITE, MOST_RULE, MOST_SENTENCE, MOST_TEXT, EntryKind
from medloop.data.text.risk import strata_of
from medloop.errors import InputError
from medloop.knobs import problem_text
from medloop.lexicon.language import detect_language
from medloop.loop.rule_guard import forbidden_act
from medloop.privacy.consent import Register
from medloop.privacy.phi.scrub import Scrubber
from medloop.reward.answer_text import split_answer
from medloop.reward.detect.acts import acts, is_about_medicine
from medloop.serve.gateway.notices import without_notices
from medloop.store.db import Store
from medloop.store.records import codebook, codebook_votes, crud, lineage, quarantine, sites
from medloop.store.records.audited_read import get_audited
from medloop.store.tables import rlhf_corrections, rlhf_feedback

PURPOSE = "codebook"
WAITS = "it waits in quarantine"
LOOK_S = 0.25  # how long a look at the codebook counts
Reflector = Callable[[CorrectedAnswer, Sequence[str]], EntryText | None]  # a teacher's words, or None where it has none


class RulesOfStore:
    """FindRules over the live codebook of a site. What this process changes counts at once, what another does within LOOK_S."""

    def __init__(self, store: Store, config: RetrieveConfig | None = None, site: str = DEFAULT_SITE) -> None:
        self._store, self._config, self._site = store, config or RetrieveConfig(), site
        self._key: tuple[int, int, int] | None = None
        self._looked, self._writes = float("-inf"), -1
        self._retriever = Retriever((), codebook.sha256_of(()), self._config)

    def __call__(self, question: str, /) -> RulesFound:
        return self.retriever()(question)

    @property
    def sha256(self) -> str:
        return self.retriever().sha256

    @property
    def system_prompt(self) -> str:
        """The system prompt of the codebook; empty where it has none."""
        return self.retriever().system

    @property
    def is_quick(self) -> bool:
        """Whether the next question is answered without the store, and without comparing it with a rule."""
        return self._is_fresh() and not self._retriever.entries

    def _is_fresh(self) -> bool:
        return self._writes == self._store.writes and time.monotonic() - self._looked < LOOK_S

    def retriever(self) -> Retriever:
        if self._is_fresh():
            return self._retriever
        looked, writes = time.monotonic(), self._store.writes  # before the look: a change during it is noticed by the next
        key = codebook.live_key(self._store)
        if key != self._key:
            entries = codebook.at_site(codebook.live(self._store).entries, self._site)
            self._retriever, self._key = Retriever(entries, codebook.sha256_of(entries), self._config), key
        self._looked, self._writes = looked, writes
        return self._retriever


def rules_for(store: Store, config: RetrieveConfig | None = None, *, site: str = DEFAULT_SITE) -> RulesOfStore:
    return RulesOfStore(store, config, site)


@dataclass
class Proposals:
    """What came of a look at corrections: proposals, and why the others gave none."""

    entries: list[CodebookEntry] = field(default_factory=list)
    known: int = 0
    unusable: dict[str, int] = field(default_factory=dict)

    def skip(self, why: str) -> None:
        self.unusable[why] = self.unusable.get(why, 0) + 1


def has_new_corrections(store: Store) -> bool:
    """Whether `propose_new` has any to look at."""
    return bool(crud.page(store, Correction, after=codebook_votes.cursor(store).proposed_row))


def propose_new(
    store: Store, *, actor: str, everything: bool = False, reflector: Reflector | None = None, embed: Embed | None = None
) -> Proposals:
    """Proposals from the corrections since the last look, or from all that have none yet.

    `reflector` writes the rules of corrections that a teacher may read; `embed` finds rules that say the same in other words.
    """
    after = 0 if everything else codebook_votes.cursor(store).proposed_row
    proposals, last, waiting = Proposals(), after, None
    while page := crud.page(store, Correction, after=last):
        known = {
            name for entry in codebook.by_evidence(store, [record.correction_id for _, record in page]) for name in entry.evidence
        }
        for last, record in page:
            if record.correction_id in known:
                proposals.known += 1
            elif unusable(store, record) == WAITS:  # the next look begins with it
                waiting = last if waiting is None else waiting
                proposals.skip(WAITS)
            else:
                _propose(store, record.correction_id, proposals, actor, reflector, embed)
    seen = max(last, codebook_votes.cursor(store).proposed_row) if waiting is None else waiting - 1
    codebook_votes.move_cursor(store, proposed_row=seen)
    return proposals


def propose_from(
    store: Store, correction_id: str, *, actor: str, reflector: Reflector | None = None, embed: Embed | None = None
) -> CodebookEntry:
    """The proposal from one correction; InputError says why it gives none."""
    proposals = Proposals()
    _propose(store, correction_id, proposals, actor, reflector, embed)
    if not proposals.entries:
        why = next(iter(proposals.unusable), "it was not found")
        raise InputError(f"{correction_id} gives no rule: {why}", "Write one: medloop codebook propose --text TEXT")
    return proposals.entries[0]


def _propose(
    store: Store, correction_id: str, proposals: Proposals, actor: str, reflector: Reflector | None, embed: Embed | None
) -> None:
    record = get_audited(store, Correction, correction_id, actor=actor, purpose=PURPOSE)
    if record is None:
        return proposals.skip("it was not found")
    if why := unusable(store, record):
        return proposals.skip(why)
    corrected = corrected_answer(record)
    if corrected is None:
        return proposals.skip("its text may identify a person")
    may_leave = Register.of(store).covers(record, "teacher")
    author = record.clinician_id or record.recorded_by or actor
    site = sites.scope_of(store, record)
    others = _like_answers(store, corrected, site)
    draft = (reflector(corrected, others) if reflector and may_leave else None) or reflect(corrected, others)
    made = add_draft(store, draft, evidence=(correction_id,), author=author, actor=actor, site=site, embed=embed)
    proposals.entries.append(made)
    return None


def _like_answers(store: Store, corrected: CorrectedAnswer, site: str) -> list[str]:
    """Experts' answers that other rules come from, to questions with a trigger of this one's, in its language."""
    triggers = set(reflect(corrected).triggers)
    language = "zh" if corrected.is_chinese else "en"
    alike = [
        entry
        for entry in codebook.at_site(codebook.entries(store), site)
        if entry.kind == "rule" and entry.state in ("active", "proposed") and entry.language == language
        and triggers & set(entry.content.triggers)
    ]  # fmt: skip
    return list(dict.fromkeys(answer for entry in alike for answer in entry.content.answers if answer))


def unusable(store: Store, record: Correction | Feedback) -> str | None:
    """Why a record gives no entry; None where nothing speaks against it."""
    if isinstance(record, Correction):
        record_id, table = record.correction_id, rlhf_corrections
    else:
        record_id, table = record.feedback_id, rlhf_feedback
    if not Register.of(store).covers(record, "training"):
        return "it does not allow training"
    if record_id in lineage.superseded(store, table) or record_id in lineage.erased_ids(store):
        return "it was replaced or taken back"
    held = {entry.record_id: entry.state for entry in quarantine.list_held(store, None)}
    states = {held.get(name, "released") for name in (record_id, record.trace_id or record_id)}
    if "refused" in states:
        return "it was refused in quarantine"
    return WAITS if "waiting" in states else None


def corrected_answer(record: Correction) -> CorrectedAnswer | None:
    """The correction without identifiers, read by the detectors; None where the scrubber doubts its work.

    The chain and the gateway's notices are no words of the model: an expert who leaves them out forbids nothing.
    """
    scrubber = Scrubber()
    answers = (without_notices(split_answer(text).visible) or text for text in (record.original, record.golden))
    texts = (record.prompt, *answers, record.reason or "")
    assessed = [scrubber.assess(text) for text in texts]
    if any(one.quarantined for one in assessed):
        return None
    question, original, golden, reason = (one.cleaned for one in assessed)
    about = is_about_medicine(question)
    return CorrectedAnswer(question, original, golden, reason, acts(original, about), acts(golden, about))


def add_draft(
    store: Store,
    draft: EntryText,
    *,
    evidence: Sequence[str],
    author: str,
    actor: str,
    kind: EntryKind = "rule",
    scope: str = "",
    site: str = EVERY_SITE,
    embed: Embed | None = None,
) -> CodebookEntry:
    """A draft as a proposal: a new entry, or the next revision of one that says the same."""
    scope = scope or strata_of(draft.question or draft.text)[0]
    newest: dict[str, CodebookEntry] = {}  # an earlier revision lacks what the later ones were merged with
    for entry in codebook.entries(store):
        if entry.state in ("active", "proposed") and entry.site == site:
            newest.setdefault(entry.entry_id, entry)
    others = list(newest.values())
    placed: Placement = place(draft, kind, scope, others, embed)
    if placed.target is None:
        language = "zh" if detect_language(draft.question or draft.text) in ("zh", "mixed") else "en"
        entry = CodebookEntry(
            content=draft, kind=kind, scope=scope, language=language, site=site, evidence=tuple(evidence), author=author
        )
        return codebook.propose(store, entry, actor=actor)
    target = placed.target
    every = tuple(dict.fromkeys([*target.evidence, *evidence]))
    update = {"content": merged(target.content, draft), "evidence": every, "author": author}
    return codebook.propose(store, _next_revision(target, update), actor=actor)


def draft_edit(store: Store, entry: CodebookEntry, changes: Mapping[str, Any], *, actor: str, author: str) -> CodebookEntry:
    """A person's change as a new revision; texts pass the scrubber."""
    check_words(
        entry.kind, changes.get("text", entry.text), changes.get("triggers", entry.content.triggers), entry.content.question,
        changes.get("first_sentence", ""), changes.get("expires"),
    )  # fmt: skip
    content = entry.content.model_dump() | {
        name: clean_text(value) if isinstance(value, str) else tuple(map(clean_text, value))
        for name, value in changes.items()
        if name in ("text", "triggers", "first_sentence")
    }
    content |= {"forbids": tuple(changes["forbids"])} if "forbids" in changes else {}
    content |= {"answers": ()} if changes.get("answers") == () else {}
    update: dict[str, Any] = {
        name: value for name, value in changes.items() if name in ("scope", "expires", "language", "supersedes")
    }
    update |= {"content": checked_text(content), "author": author}
    return codebook.propose(store, _next_revision(entry, update), actor=actor)


def merge_entries(store: Store, first: CodebookEntry, second: CodebookEntry, *, actor: str, author: str) -> CodebookEntry:
    """A proposal that replaces both: the words of the first, the evidence and questions of both."""
    if (first.kind, first.site) != (second.kind, second.site) or first.entry_id == second.entry_id:
        raise InputError("Only two different entries of one kind and site can be merged", codebook.LIST)
    update = {
        "content": merged(first.content, second.content), "supersedes": (second.entry_id,), "author": author,
        "evidence": tuple(dict.fromkeys([*first.evidence, *second.evidence])),
    }  # fmt: skip
    return codebook.propose(store, _next_revision(first, update), actor=actor)


def written_entry(
    store: Store,
    text: str,
    *,
    triggers: Sequence[str],
    first_sentence: str,
    forbids: Sequence[str] = (),
    scope: str,
    author: str,
    actor: str,
    expires: Any = None,
    site: str = EVERY_SITE,
) -> CodebookEntry:
    """A rule that a person writes without a correction."""
    check_words("rule", text, triggers, "", first_sentence, expires)
    content = checked_text(
        {
            "text": clean_text(text), "triggers": tuple(map(clean_text, triggers)), "first_sentence": clean_text(first_sentence),
            "forbids": tuple(forbids),
        }
    )  # fmt: skip
    language = "zh" if detect_language(text) in ("zh", "mixed") else "en"
    try:
        entry = CodebookEntry(
            content=content,
            scope=scope or strata_of(text)[0],
            language=language,
            author=author,
            expires=expires,
            site=site if site == EVERY_SITE else sites.known_site(store, site),
        )
    except ValidationError as error:
        raise InputError(f"Not an entry of the codebook: {problem_text(error.errors()[0])}", "Shorten it") from None
    return codebook.propose(store, entry, actor=actor)


def as_rule(entry: CodebookEntry, counts: codebook_votes.VoteCounts | None = None) -> CodebookRule:
    """An entry as the files of rules have it."""
    votes = counts or codebook_votes.VoteCounts()
    state = entry.state if entry.state in ("proposed", "active") else "retired"
    return CodebookRule(
        rule_id=entry.entry_id, text=entry.text, scope=entry.scope, triggers=entry.content.triggers, evidence=entry.evidence,
        helpful=votes.helpful, harmful=votes.harmful, state=state, approver=entry.approver, expires=entry.expires,
        supersedes=next(iter(entry.supersedes), None), timestamp=entry.timestamp,
    )  # fmt: skip


def conflicts_of(store: Store, entry: CodebookEntry) -> list[str]:
    """The live entries that contradict a proposal, by id: by their words, or because one forbids what the other says first."""
    live = codebook.live(store).entries
    others = live if entry.site == EVERY_SITE else codebook.at_site(live, entry.site)
    found = [conflict.entry_id for conflict in conflicts(entry, others)]
    against = [
        other.entry_id
        for other in others
        if other.entry_id not in (entry.entry_id, *entry.supersedes)
        and may_meet(entry, other)
        and (_takes_out(entry, other) or _takes_out(other, entry))
    ]
    return list(dict.fromkeys([*found, *against]))


def _takes_out(rule: CodebookEntry, other: CodebookEntry) -> bool:
    """Whether a rule forbids what the vetted sentence of another one does."""
    sentence = other.content.first_sentence
    return bool(sentence and forbidden_act(sentence, sentence, rule.content.forbids))


def check_words(
    kind: EntryKind, text: str, triggers: Sequence[str], question: str, first_sentence: str, expires: datetime | None
) -> None:
    """What a person wrote is there, fits, and can have an effect; before anybody scans it for names."""
    what, most = ("rule", MOST_RULE) if kind == "rule" else ("text", MOST_TEXT)
    if not text.strip():
        raise InputError(f"Write the {what}")
    if len(text) > most:
        raise InputError(f"The {what} has more than {most} characters", "Write it shorter")
    if len(first_sentence) > MOST_SENTENCE:
        raise InputError(f"The first sentence has more than {MOST_SENTENCE} characters", "Write it shorter")
    if kind == "rule" and not triggers and not question:
        raise InputError("Without a trigger this rule fits no question", "Write a trigger, or * for every question")
    if expires is not None and expires <= utc_now():
        raise InputError(f"The last day, {expires:%Y-%m-%d}, is over", "Choose a day in the future, or none")


def clean_text(text: str) -> str:
    """What a person wrote for everybody, without identifiers; InputError where the scrubber doubts."""
    assessed = Scrubber().assess(" ".join(text.split()))
    if assessed.quarantined or assessed.spans:
        raise InputError("This text may name a person", "A rule is for every patient: leave names, numbers and dates out")
    return assessed.cleaned


def checked_text(values: Mapping[str, Any]) -> EntryText:
    try:
        content = EntryText.model_validate(values)
    except ValidationError as error:
        raise InputError(
            f"Not an entry of the codebook: {problem_text(error.errors()[0])}", "Shorten it, or fill it in"
        ) from None
    if act := forbidden_act(content.first_sentence, content.first_sentence, content.forbids):
        raise InputError(f"The first sentence does what the rule forbids: {act}", "Change the sentence, or allow the act")
    return content


def _next_revision(entry: CodebookEntry, update: Mapping[str, Any]) -> CodebookEntry:
    """A fresh revision of an entry: without the decisions about the old one."""
    values = {
        name: getattr(entry, name) for name in ("entry_id", "kind", "scope", "language", "site", "content", "evidence", "expires")
    }
    try:
        return CodebookEntry(**{**values, **update, "timestamp": utc_now()})
    except ValidationError as error:
        raise InputError(f"Not an entry of the codebook: {problem_text(error.errors()[0])}", "Shorten it") from None
