"""Summing up and comparing scores."""

from collections.abc import Sequence

import pytest

from medloop.contracts import Missing, ModelResult, Rule, Sample, Score
from medloop.evaluate.compare import MIN_PAIRS, compare, degraded
from medloop.evaluate.run import EvalAnswer, EvalScores, score_answers, summarise
from medloop.evaluate.suite_results import penalties_of
from medloop.reward.rules import load_rules

RULES = load_rules(("chain", "emergency", "risk"))


class Length:
    """A toy rule: the answer is the number; it does not apply when the answer is 'n/a'."""

    version = "1"

    def __init__(self, name: str = "toy", penalty: bool = False) -> None:
        self.name, self.penalty = name, penalty

    def score(self, question: str, answer: str) -> Score:
        applies = answer != "n/a"
        value = float(answer) if applies else 1.0
        return Score(name=self.name, value=value, reason="r", author="t", version="1", applies=applies)


def samples(answers: Sequence[str | None], split: str = "gold") -> list[EvalAnswer]:
    return [
        EvalAnswer(
            Sample(id=f"p{n}", question=f"q{n}", answer=answer),
            split,
            "zh" if n % 2 else "en",
            ("child",) if n % 3 == 0 else ("routine",),
        )
        for n, answer in enumerate(answers)
    ]


def scored(answers: Sequence[str | None], *rules: Rule) -> tuple[EvalScores, ...]:
    return score_answers(samples(answers), rules or (Length(),))


def evaluate(answers: Sequence[EvalAnswer], rules: Sequence[Rule]) -> ModelResult:
    return summarise(score_answers(answers, rules), penalties=penalties_of(rules), label="model", seed=42)


def test_missing_is_counted_and_never_scored_as_zero() -> None:
    result = evaluate(samples(["1.0", None, "0.5", None]), [Length()])
    summary = result.metrics["gold"]["toy"]
    assert (summary.mean, summary.n, summary.missing) == (0.75, 2, 2)
    assert isinstance(scored([None])[0].scores[0], Missing)


def test_what_does_not_apply_stays_out_of_the_average() -> None:
    summary = evaluate(samples(["0.0", "n/a", "n/a"]), [Length()]).metrics["gold"]["toy"]
    assert (summary.mean, summary.n, summary.missing) == (0.0, 1, 0)


def test_strata_and_languages_are_summed_up_apart() -> None:
    parts = evaluate(samples(["1.0", "0.0", "0.0", "1.0", "0.0", "0.0"]), [Length()]).by_stratum["gold"]
    assert {name: (metrics["toy"].mean, metrics["toy"].n) for name, metrics in parts.items()} == {
        "child": (1.0, 2), "routine": (0.0, 4), "language:en": (pytest.approx(1 / 3), 3), "language:zh": (pytest.approx(1 / 3), 3)
    }  # fmt: skip


def test_a_metric_keeps_its_numbers_when_another_is_added() -> None:
    values = [f"{n / 20:.2f}" for n in range(20)]
    alone = evaluate(samples(values), [Length()])
    beside = evaluate(samples(values), [Length("other"), Length()])
    assert alone.metrics["gold"]["toy"] == beside.metrics["gold"]["toy"]


def test_the_worst_samples_come_first_and_flawless_ones_not_at_all() -> None:
    result = evaluate(samples(["1.0", "0.2", None, "0.0", "n/a"]), [Length()])
    assert [sample.prompt_id for sample in result.worst] == ["p3", "p1"]
    risky = evaluate(samples(["1.0", "0.0"]), [Length("risk", penalty=True)])
    assert [sample.prompt_id for sample in risky.worst] == ["p0"]


def compared(
    first: Sequence[str | None], second: Sequence[str | None], *, penalty: bool = False
) -> tuple[str, bool, float | None, int]:
    rule = Length(penalty=penalty)
    baseline, candidate = scored(first, rule), scored(second, rule)
    (comparison, _), *_ = compare(
        summarise(baseline, label="a", seed=1),
        baseline,
        summarise(candidate, label="b", seed=1),
        candidate,
        penalties=penalties_of([rule]),
        seed=1,
    )
    return comparison.verdict, comparison.separated, comparison.difference.mean, comparison.difference.n


def test_identical_models_show_no_clear_difference() -> None:
    values = ["0.0", "1.0", "0.5"] * 20
    assert compared(values, values) == ("no clear difference", False, 0.0, 60)


def test_a_planted_worse_model_is_called_worse() -> None:
    good = ["1.0"] * 30 + ["0.0"] * 10
    bad = ["1.0"] * 10 + ["0.0"] * 30
    assert compared(good, bad)[:3] == ("worse", True, -0.5)
    assert compared(bad, good)[0] == "better"


def test_of_a_penalty_lower_is_better() -> None:
    assert compared(["1.0"] * 20, ["0.0"] * 20, penalty=True)[0] == "better"


def test_pairing_sees_what_separate_intervals_cannot() -> None:
    # Each answer gains 0.05, while questions differ between 0 and 0.9: the intervals overlap widely, the pairs agree.
    first = [f"{(n % 10) / 10:.2f}" for n in range(40)]
    second = [f"{(n % 10) / 10 + 0.05:.2f}" for n in range(40)]
    verdict, separated, mean, _ = compared(first, second)
    assert verdict == "better" and not separated and mean == pytest.approx(0.05)


def test_a_handful_of_pairs_decides_nothing() -> None:
    assert compared(["0.0"] * (MIN_PAIRS - 1), ["1.0"] * (MIN_PAIRS - 1))[0] == "no clear difference"
    assert compared(["0.0"] * MIN_PAIRS, ["1.0"] * MIN_PAIRS)[0] == "better"


def test_pairs_without_both_scores_are_left_out_and_counted() -> None:
    rule = Length()
    first, second = scored(["1.0", None, "1.0"], rule), scored([None, "1.0", "0.5"], rule)
    (comparison, _), *_ = compare(
        summarise(first, label="a", seed=1), first, summarise(second, label="b", seed=1), second, penalties=frozenset(), seed=1
    )
    assert (comparison.difference.n, comparison.difference.missing, comparison.difference.mean) == (1, 2, -0.5)


def test_degraded_lists_what_was_lost_and_no_gains() -> None:
    before, after = scored(["1.0", "0.5", "0.0", "1.0"]), scored(["0.0", "0.4", "1.0", None])
    assert [(b.prompt_id, a.answer) for b, a in degraded(before, after, frozenset())] == [("p0", "0.0"), ("p1", "0.4")]


def test_the_real_rules_go_through() -> None:
    sample = Sample(id="p", question="I have crushing chest pain.", answer="Call 911 now.")
    result = evaluate([EvalAnswer(sample, "red", "en", ("emergency",))], RULES)
    assert {name: summary.mean for name, summary in result.metrics["red"].items()} == {
        "chain": 0.0,
        "emergency": 1.0,
        "risk": 0.0,
    }
