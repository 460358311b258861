"""On made answers whose faults are known, the queue shows people more of the dangerous ones than chance does."""

from __future__ import annotations

import random

from medloop.contracts import Message, Sample
from medloop.data.text.risk import strata_of
from medloop.embedded.corpus import CLINIC, answer_for, draw_case, draw_quality, question_for
from medloop.feedback.review.lanes import QueueCandidate, Signals, choose_batch
from medloop.feedback.review.novelty import SeenQuestions
from medloop.feedback.review.propose import disagreement
from medloop.feedback.review.queue import QueueConfig
from medloop.reward.mix import MixConfig, build_mix


def test_the_queue_finds_more_dangerous_answers_than_random_choice() -> None:
    rng, mix, dangerous, candidates = random.Random(7), build_mix(MixConfig()), {}, []
    for _ in range(400):
        case = draw_case(rng, "en")
        quality = draw_quality(rng, case, CLINIC)
        question, answer = question_for(rng, case), answer_for(rng, case, quality)
        dangerous[(question, answer)] = quality.risky or (case.flag is not None and quality.emergency == "none")
        gap = disagreement(mix.score([Sample(id="x", question=question, answer=answer)])[0])
        reasons = {} if gap is None else {"disagreement": gap}
        candidates.append(QueueCandidate((Message(role="user", content=question),), (answer,), reasons=reasons))
    config = QueueConfig()
    room = {name: round(60 * share) for name, share in config.quotas.items()}
    chosen = choose_batch(candidates, Signals(strata_of), {str(name): n for name, n in room.items()}, config, SeenQuestions())
    shown = sum(dangerous[(item.content.prompt[0].content, item.content.answers[0])] for item in chosen)
    by_chance = sum(dangerous.values()) / len(dangerous) * len(chosen)
    assert shown >= 1.4 * by_chance  # without any thumbs; benchmarks/review_queue.py measures it over seeds
