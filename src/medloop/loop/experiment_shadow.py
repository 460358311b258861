"""Shadow mode: the challenger answers what the champion was asked, nobody sees it, and reviewers compare the two blind.

    shadow(store, experiment_id, generate, most=50, actor="usr_1")      # pairs into the review queue; the page Compare shows them
    shadow_votes(store, plan)                                           # what they chose, with an interval

The pairs go the way of all pairs: scrubbed, without the names of the versions, in an order that is drawn for each reviewer and
stored with the choice. They lie in the queue with the id of the trace, so an erasure reaches them.
"""

from dataclasses import dataclass

from medloop.contracts import Message, Trace
from medloop.contracts.experiment import ExperimentPlan, ShadowVotes, version_name
from medloop.data.text.risk import strata_of
from medloop.evaluate.examined import Generate
from medloop.experiment.shadow import ShadowChoice, count_votes
from medloop.feedback.review.lanes import QueueCandidate, make_item
from medloop.feedback.review.propose import scrubbed
from medloop.feedback.review.queue import DEFAULT
from medloop.store.db import Store
from medloop.store.records import experiments, marks, review_queue
from medloop.store.records.audited_read import read_by_ids

PURPOSE = "experiment shadow"
PRIORITY = 0.5
LOOK_BACK = 2000  # newest traces among which the champion's are sought
MAX_NEW_TOKENS, BATCH = 256, 16


@dataclass(frozen=True)
class ShadowRound:
    """What a round of silent answers came to."""

    asked: int
    same: int  # the challenger gave the same answer
    withheld: int  # texts that may still name a person, or no answer
    queued: int


def shadow(store: Store, experiment_id: str, generate: Generate, *, most: int, actor: str) -> ShadowRound:
    """Ask the challenger the newest questions of the champion, and queue the pairs that differ."""
    plan = experiments.get(store, experiment_id).plan
    traces = _champions(store, plan, most, actor)
    prompts = [trace.conversation.prompt for trace in traces]
    seed = store.settings.seed
    done = generate(prompts, max_new_tokens=MAX_NEW_TOKENS, temperature=0.0, seed=seed, batch_size=BATCH) if prompts else []
    answers = [completion.text.strip() for completion in done]
    pairs = [(trace, answer) for trace, answer in zip(traces, answers, strict=True) if answer]
    different = [(trace, answer) for trace, answer in pairs if answer.split() != (trace.conversation.answer or "").split()]
    candidates = [_candidate(plan, trace, answer) for trace, answer in different]
    clean = list(scrubbed(store, candidates))
    items = [make_item(row, DEFAULT, strata_of(row.question)[0], PRIORITY, {"disagreement": PRIORITY}) for row in clean]
    queued = review_queue.add_items(store, items, actor=actor)
    return ShadowRound(len(traces), len(pairs) - len(different), len(traces) - len(pairs) + len(candidates) - len(clean), queued)


def _champions(store: Store, plan: ExperimentPlan, most: int, actor: str) -> list[Trace]:
    traces = read_by_ids(store, Trace, marks.newest_traces(store, LOOK_BACK), actor=actor, purpose=PURPOSE)
    answered = [
        trace
        for trace in traces
        if version_name(trace.model_version) == plan.champion and (trace.conversation.answer or "").strip()
    ]
    return answered[-most:]


def _candidate(plan: ExperimentPlan, trace: Trace, answer: str) -> QueueCandidate:
    prompt: tuple[Message, ...] = trace.conversation.prompt
    return QueueCandidate(
        prompt=prompt, answers=(trace.conversation.answer or "", answer), kind="compare", models=(plan.champion, plan.challenger),
        traces=(trace.trace_id, None), contexts=trace.contexts,
    )  # fmt: skip


def shadow_votes(store: Store, plan: ExperimentPlan) -> ShadowVotes | None:
    """The blind choices between these two versions since the plan; None where there is none."""
    choices = [ShadowChoice(*row) for row in experiments.choices_between(store, plan.champion, plan.challenger, plan.timestamp)]
    votes = count_votes(choices, champion=plan.champion, challenger=plan.challenger)
    return votes if votes.reviewers else None
