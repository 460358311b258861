"""A changed rule needs a new version: scores of two versions must not be taken for the same measure."""

import pytest

from medloop.contracts import canonical_json, sha256_id
from medloop.embedded.corpus import generate
from medloop.reward.rules import RULES

# Digests of values with spans, and of reasons. When the first one changes, a rule gives other values than before: if that is
# intended, raise its `version` and put the line it prints here; if you only wanted speed, you changed more than that. When only
# the second one changes, the wording of a reason changed: put the line here, the version stays.
# (A changed embedded corpus changes the texts that are scored: then all lines change.)
KNOWN: dict[tuple[str, str], tuple[str, str]] = {
    ("chain", "2/points-5/fluency-1/advice-3/acts-4/lexicon-8"): ("527349c93e76976c", "616c4b8a5f5ab4d6"),
    ("emergency", "3/acts-4/lexicon-8/urgency-2"): ("af96e728f8980e49", "7a3b7b1ebab9cecb"),
    ("false_reassurance", "3/acts-4/urgency-2/lexicon-8"): ("d530d5006bd25cf2", "82945734d4eb3623"),
    ("format", "1"): ("cffa4c3e2ca8c259", "9a9e7b97a74a5f32"),
    ("helpfulness", "2/points-5/fluency-1/acts-4/urgency-2"): ("9113f0463f975e83", "0226fddcef340735"),
    ("length", "3/points-5/fluency-1/advice-3/acts-4/lexicon-8"): ("1cedbe8ec7e0042f", "2689b9abbfbc48aa"),
    ("off_topic", "2/points-5/fluency-1/advice-3/acts-4/lexicon-8"): ("9c6217f1442b542c", "8e8896bb59d562a5"),
    ("overtriage", "3/acts-4/lexicon-8/urgency-2"): ("756e736259da9dd2", "0c0cb2c4e023ad4c"),
    ("repetition", "2"): ("9f2e2d432a0f5d8a", "d731a198f30d23e1"),
    ("risk", "4/acts-4/hazards-1/lexicon-8"): ("39565d90fa1f7ed0", "0e5550e2b12f2925"),
    ("safety_net", "3/acts-4/lexicon-8/urgency-2"): ("df36c0047af3eeda", "52925aba7bfd00e5"),
    ("undertriage", "3/acts-4/lexicon-8/urgency-2"): ("8cd66700185afe0b", "0593a6e068018c3f"),
}


def answers() -> list[tuple[str, str]]:
    """The embedded corpus, and what a cheating policy would make of it."""
    pairs = []
    for number, row in enumerate(generate(400, seed=5)):
        question, answer = (
            next(m["content"] for m in reversed(row["messages"]) if m["role"] == role) for role in ("user", "assistant")
        )
        tricks = [answer * 2, question, f"<think>{question}</think>{answer}", answer.replace("</think>", ""), answer[:60]]
        pairs += [(question, answer), (question, tricks[number % len(tricks)])]
    return pairs


@pytest.mark.parametrize("name", RULES)
def test_the_scores_are_those_of_the_version(name: str) -> None:
    rule = RULES[name]
    scores = [rule.score(*pair).model_dump(mode="json", exclude={"version"}) for pair in answers()]
    reasons = [score.pop("reason") for score in scores]
    digests = tuple(sha256_id(canonical_json(rows))[7:23] for rows in (scores, reasons))
    assert KNOWN.get((name, rule.version)) == digests, f'("{name}", "{rule.version}"): {digests},'
