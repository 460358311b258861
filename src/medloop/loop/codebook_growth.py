"""What the codebook grows by beside rules, and what leaves it: examples, a system prompt, proven rules that training has learnt.

    propose_examples(store, actor="usr_1", most=20)            # liked and corrected answers, as few-shot examples
    propose_prompt(store, actor="usr_1", author="usr_1")       # a system prompt from the newest corrections, for all or a site
    promote(settings, store, entry, by="usr_1")                # a proven rule that the live model no longer needs

All are proposals with the same trial and the same approval as a rule.
"""

from collections.abc import Callable, Iterator, Sequence

from medloop.codebook.optimise import optimised_prompt
from medloop.codebook.reflect import CorrectedAnswer
from medloop.contracts import CodebookEntry, CodebookTrial, CodebookVersion, Correction, EntryText, Feedback
from medloop.contracts.rule import EVERY_SITE
from medloop.errors import InputError
from medloop.loop.codebook import PURPOSE, Proposals, add_draft, corrected_answer, unusable
from medloop.loop.codebook_effects import helps
from medloop.loop.codebook_trial import Answerer, try_entry
from medloop.privacy.consent import Register
from medloop.privacy.phi.scrub import Scrubber
from medloop.reward.detect.urgency import urgency
from medloop.reward.disposition import disposition
from medloop.settings import Settings
from medloop.store.db import Store
from medloop.store.records import codebook, codebook_votes, lineage, sites
from medloop.store.records.audited_read import read_audited

MOST_EXAMPLE = 800  # characters of question and answer together; a longer one fills the budget of a prompt alone
MOST_CORRECTIONS = 50  # that a system prompt is made from: the newest
PROVEN = 5  # answers that people liked, and none that they did not
PromptWriter = Callable[[str, Sequence[CorrectedAnswer]], EntryText | None]


def propose_examples(store: Store, *, actor: str, most: int = 20) -> Proposals:
    """Examples from corrections first, then from answers that people liked; newest first, each question once."""
    proposals = Proposals()
    known = {name for entry in codebook.entries(store, kind="example") for name in entry.evidence}
    for record in _newest_first(store, actor):
        if len(proposals.entries) >= most:
            break
        record_id = record.correction_id if isinstance(record, Correction) else record.feedback_id
        if record_id in known:
            proposals.known += 1
            continue
        if why := unusable(store, record):
            proposals.skip(why)
            continue
        draft = _example(record)
        if draft is None:
            proposals.skip("it is too long, unsafe, or may identify a person")
            continue
        author = record.clinician_id or record.recorded_by or actor
        site = sites.scope_of(store, record)
        made = add_draft(store, draft, evidence=(record_id,), author=author, actor=actor, kind="example", site=site)
        proposals.entries.append(made)
    return proposals


def _newest_first(store: Store, actor: str) -> Iterator[Correction | Feedback]:
    yield from reversed(list(read_audited(store, Correction, actor=actor, purpose=PURPOSE)))
    liked = [record for record in read_audited(store, Feedback, actor=actor, purpose=PURPOSE) if helps(record)]
    yield from reversed([record for record in liked if record.user_query.strip() and record.agent_response.strip()])


def _example(record: Correction | Feedback) -> EntryText | None:
    question, answer = (record.prompt, record.golden) if isinstance(record, Correction) else record.exchange
    scrubber = Scrubber()
    assessed = [scrubber.assess(text) for text in (question, answer.rpartition("</think>")[2])]
    if any(one.quarantined or one.spans for one in assessed):  # a placeholder in an example teaches placeholders
        return None
    question, answer = (" ".join(one.cleaned.split()) for one in assessed)
    if not question or not answer or len(question) + len(answer) > MOST_EXAMPLE:
        return None
    if urgency(question).level == "emergent" and disposition(question, answer).level != "care_now":
        return None  # somebody liked it, and it must not be imitated
    return EntryText(text=answer, question=question)


def propose_prompt(
    store: Store, *, actor: str, author: str, writer: PromptWriter | None = None, site: str = EVERY_SITE
) -> CodebookEntry:
    """A new system prompt from the newest usable corrections; InputError where they say nothing.

    That of all sites comes from the central staff's corrections, so no site has a say in it; that of a site from its own.
    """
    if site != EVERY_SITE:
        sites.known_site(store, site)
    records = [one for one in read_audited(store, Correction, actor=actor, purpose=PURPOSE) if sites.scope_of(store, one) == site]
    usable = [record for record in records[-MOST_CORRECTIONS:] if unusable(store, record) is None]
    corrections = {record.correction_id: one for record in usable if (one := corrected_answer(record)) is not None}
    live = codebook.at_site(codebook.live(store).entries, site)
    current = next((entry.text for entry in live if entry.kind == "prompt"), "")
    register = Register.of(store)
    may_leave = [corrections[record.correction_id] for record in usable
                 if register.covers(record, "teacher") and record.correction_id in corrections]  # fmt: skip
    draft = writer(current, may_leave) if writer and may_leave else None
    draft = draft or optimised_prompt(current, list(corrections.values()))
    if draft is None:
        raise InputError("The corrections name no mistake that the system prompt does not mention", "Correct more answers first")
    evidence = tuple(corrections)
    return add_draft(store, draft, evidence=evidence, author=author, actor=actor, kind="prompt", scope="general", site=site)


def promote(
    settings: Settings, store: Store, entry: CodebookEntry, *, by: str, answers: Answerer | None = None
) -> tuple[CodebookVersion, CodebookTrial]:
    """Retire a proven rule whose corrections are in training data, once the live model answers its questions without it."""
    counts = codebook_votes.counts(store).get(entry.entry_id, codebook_votes.VoteCounts())
    if counts.helpful < PROVEN or counts.harmful:
        raise InputError(
            f"{entry.entry_id} is not proven: {counts.helpful} liked answers, {counts.harmful} others",
            f"It takes {PROVEN} liked answers and no other",
        )
    datasets = lineage.datasets_of(store, entry.evidence)
    missing = set(entry.evidence) - {name for names in datasets.values() for name in names}
    if not entry.evidence or missing:
        raise InputError(
            f"{entry.entry_id} is not in training data: {len(missing) or 'no'} corrections are missing", "Run: medloop data build"
        )
    trial = try_entry(settings, store, entry, actor=by, answers=answers, removed=True)
    if trial.count(before=True, after=False):
        worse = trial.count(before=True, after=False)
        raise codebook.CodebookRefusedError(
            f"The live model still needs {entry.entry_id}: {worse} cases get worse without it", "Train on the dataset first"
        )
    reason = f"learnt from {len(datasets)} datasets"
    return codebook.retire(store, entry.entry_id, by=by, reason=reason, action="promote", trial_id=trial.trial_id), trial
