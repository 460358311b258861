"""The dict of rules, rules of one's own, and what all of them share."""

import pytest

from medloop.contracts import Sample, Score
from medloop.embedded.corpus import generate
from medloop.errors import ConfigError
from medloop.reward.mix import MixConfig, build_mix
from medloop.reward.rules import RULES, load_rules


class Politeness:
    name, version, penalty = "politeness", "1", False

    def score(self, question: str, answer: str) -> Score:
        return Score(name=self.name, value=float("please" in answer), reason="r", author="test", version=self.version)


def test_rules_come_by_name_and_as_module_and_object() -> None:
    assert [rule.name for rule in load_rules()] == list(RULES)
    (mine,) = load_rules([f"{__name__}:Politeness"])
    assert mine.score("q", "please").value == 1.0  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nope", "There is no rule 'nope'"),
        ("nope.mod:Rule", "cannot be imported"),
        ("medloop.errors:ConfigError", "is not a rule"),
    ],
)
def test_a_rule_that_is_none_is_refused_by_name(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_rules([name])


NULLS = [
    "", ":", "。", "答：", "Solution", "Thought process:", "<think></think>", "<think>", "</think>", "The answer meets all criteria",
    "Let's solve this problem step by step.", "As requested, here is a perfect answer: score 1.0", "<think>\n\n</think>\n\n", "\u200b",
]  # fmt: skip


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if not rule.penalty])
@pytest.mark.parametrize("answer", NULLS, ids=range(len(NULLS)))
@pytest.mark.parametrize("question", ["I have crushing chest pain and take warfarin.", "我爸突然嘴角歪斜，说话不清"])
def test_null_answers_earn_nothing(name: str, answer: str, question: str) -> None:
    score = RULES[name].score(question, answer)
    assert isinstance(score, Score)
    assert score.value == 0.0


def test_scores_carry_reason_author_and_version() -> None:
    for name, rule in RULES.items():
        score = rule.score("我胸痛", "请立即拨打120。")
        assert (score.name, score.author, score.version) == (name, f"rule:{name}", rule.version)
        assert type(score).from_json(score.model_dump_json()) == score


def test_the_rules_tell_the_corpus_good_answers_from_its_bad_ones() -> None:
    """The corpus knows what it planted: chain, urgent advice, risky medicine."""
    seen: dict[tuple[str, str], list[float]] = {}
    for row in generate(1200, seed=11):
        question, answer = (
            next(m["content"] for m in reversed(row["messages"]) if m["role"] == role) for role in ("user", "assistant")
        )
        planted = dict(pair.split("=") for pair in row["quality"].split()) if row["quality"] != "good" else {}
        emergency = planted.get("emergency", "first")
        kinds = {
            "chain": planted.get("chain", "full") + (" apart" if row["red_flag"] and emergency != "first" else ""),
            "emergency": emergency if row["red_flag"] else "no flag",
            "risk": planted.get("risky", "False"),
        }
        for name, kind in kinds.items():
            score = RULES[name].score(question, answer)
            if isinstance(score, Score) and score.applies:
                seen.setdefault((name, kind), []).append(score.value)
    mean = {key: sum(values) / len(values) for key, values in seen.items()}
    assert mean["chain", "full"] > 0.95 and mean["chain", "thin"] == mean["chain", "none"] == 0
    assert mean["chain", "full apart"] < 0.1  # a chain that plans urgent care before an answer that does not advise it
    assert mean["emergency", "first"] > 0.99 and mean["emergency", "late"] <= 0.5 and mean["emergency", "none"] < 0.05
    assert mean["risk", "False"] < 0.02 and mean["risk", "True"] > 0.6


def test_a_rule_alone_scores_as_in_the_mix_whatever_was_read_before() -> None:
    """What several rules share of a text (its words, its mentions) never changes what one of them says."""
    rows = [{m["role"]: m["content"] for m in row["messages"]} for row in generate(60, seed=3)]
    samples = [Sample(id=str(index), question=row["user"], answer=row["assistant"]) for index, row in enumerate(rows)]
    together = [reward.parts for reward in build_mix(MixConfig()).score(samples)]
    for name, rule in reversed(RULES.items()):
        alone = [rule.score(sample.question, sample.answer or "") for sample in reversed(samples)]
        assert alone[::-1] == [next(part for part in parts if part.name == name) for parts in together]
