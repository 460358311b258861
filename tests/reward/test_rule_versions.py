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
    ("chain", "2/points-7/fluency-1/related-1/advice-5/acts-9/lexicon-13"): ("256d7ea47caa69f1", "ff800d9f6251b520"),
    ("emergency", "5/acts-9/lexicon-13/urgency-7"): ("c92899b3be785802", "6bc15da80579d258"),
    ("false_reassurance", "19/acts-9/faults-3/urgency-7/lexicon-13/certainty-16"): ("ef74212ebe3a1602", "5e92f1ee89d71651"),
    ("format", "1"): ("f46a395c1e882373", "9a9e7b97a74a5f32"),
    ("helpfulness", "2/points-7/fluency-1/related-1/acts-9/urgency-7"): ("5b8847fc40aae51b", "613822365381f526"),
    ("length", "3/points-7/fluency-1/related-1/advice-5/acts-9/lexicon-13"): ("a63357a4125bc026", "2689b9abbfbc48aa"),
    ("off_topic", "8/points-7/fluency-1/related-1/advice-5/acts-9/lexicon-13/urgency-7"): (
        "7c7618ceed9db14f",
        "0cf04a0830e0b478",
    ),
    ("overtriage", "5/acts-9/lexicon-13/urgency-7/certainty-16/worrying-2"): ("b76aed30f49aadae", "8d8912bf8110b61e"),
    ("repetition", "7"): ("2d2103eb627cd498", "d731a198f30d23e1"),
    ("risk", "21/acts-9/hazards-6/faults-3/lexicon-13/certainty-16"): ("991263101dac381f", "7d65429302eed9aa"),
    ("safety_net", "5/acts-9/lexicon-13/urgency-7"): ("7e53216ba519acca", "3e873a23429e79e3"),
    ("undertriage", "5/acts-9/lexicon-13/urgency-7/points-7/fluency-1/related-1/certainty-16"): (
        "daba275723c8c225",
        "753800718051e836",
    ),
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
