"""A changed rule needs a new version: scores of two versions must not be taken for the same measure."""

import pytest

from medloop.contracts import canonical_json, sha256_id
from medloop.embedded.corpus import generate
from medloop.reward.rules import RULES

# When this test fails a rule gives other values, reasons or spans than before. If that was the wish, raise its `version`
# and put the line it prints here; if you only wanted speed, you changed more than that.
# (A changed embedded corpus changes the texts that are scored: then all lines change.)
KNOWN: dict[tuple[str, str], str] = {
    ("chain", "1/lexicon-2"): "5e8c9dc43ceb5615",
    ("emergency", "1/lexicon-2"): "0c251d8561366e57",
    ("false_reassurance", "1/lexicon-2"): "c91da8bffd3ffae8",
    ("format", "1"): "428657b0b2c1e0db",
    ("length", "1"): "2b8fe8e513a96910",
    ("overtriage", "1/lexicon-2"): "b7b4b4c541c77977",
    ("repetition", "2"): "dd4d546879eb43c8",
    ("risk", "1/lexicon-2"): "5e354b36dd25f64b",
}


def answers() -> list[tuple[str, str]]:
    """The embedded corpus, and what a cheating policy would make of it."""
    found = []
    for number, row in enumerate(generate(400, seed=5)):
        question, answer = (
            next(m["content"] for m in reversed(row["messages"]) if m["role"] == role) for role in ("user", "assistant")
        )
        tricks = [answer * 2, question, f"<think>{question}</think>{answer}", answer.replace("</think>", ""), answer[:60]]
        found += [(question, answer), (question, tricks[number % len(tricks)])]
    return found


@pytest.mark.parametrize("name", RULES)
def test_the_scores_are_those_of_the_version(name: str) -> None:
    rule = RULES[name]
    scores = [rule.score(*pair).model_dump(mode="json", exclude={"version"}) for pair in answers()]
    digest = sha256_id(canonical_json(scores))[7:23]
    assert KNOWN.get((name, rule.version)) == digest, f'("{name}", "{rule.version}"): "{digest}",'
