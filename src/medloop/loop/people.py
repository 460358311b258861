"""People's verdicts on answers, read from the store: ratings, corrections and inspections, whenever they arrived.

    verdicts = people_verdicts(store, actor="user:li")

A record counts when it and the person it is about allow evaluation, when nobody erased or replaced it, and when it does not
wait in quarantine; of one person's ratings of an answer the newest counts. The audit log has a line about the reading.
"""

from collections import defaultdict

from medloop.data.feedback.rater_weights import EQUAL
from medloop.data.feedback.rows import AnswerRating, ExpertAnswer, latest_per_rater
from medloop.data.feedback.select import CachedScrubber, feedback_by_prompt, select_records
from medloop.evaluate.people import PeopleVerdict, verdict_key
from medloop.store.db import Store

PURPOSE = "eval"


def people_verdicts(store: Store, *, actor: str) -> dict[str, PeopleVerdict]:
    selection = select_records(store, CachedScrubber(), actor=actor, uses=("evaluation",), purpose=PURPOSE)
    ratings, corrections = defaultdict[str, list[AnswerRating]](list), defaultdict[str, list[ExpertAnswer]](list)
    for feedback in feedback_by_prompt(store, selection, EQUAL) if len(selection.index) else ():
        for rating in feedback.ratings:
            ratings[verdict_key(rating.prompt.user_text, rating.answer)].append(rating)
        for correction in feedback.corrections:
            corrections[verdict_key(correction.prompt.user_text, correction.original)].append(correction)
    verdicts = {key: _verdict(ratings.get(key, []), corrections.get(key, [])) for key in {*ratings, *corrections}}
    return {key: verdict for key, verdict in verdicts.items() if verdict.reason}


def _verdict(ratings: list[AnswerRating], corrections: list[ExpertAnswer]) -> PeopleVerdict:
    """Who corrected an answer counts once, whatever stars they gave it."""
    corrected = latest_per_rater(corrections)
    editors = {correction.rater for correction in corrected if correction.rater}
    latest = latest_per_rater(ratings)
    opinions = [rating.liked for rating in latest if rating.rater not in editors and not rating.critical]
    return PeopleVerdict(
        liked=opinions.count(True), disliked=opinions.count(False), corrected=len(corrected),
        critical=any(rating.critical for rating in latest),
    )  # fmt: skip
