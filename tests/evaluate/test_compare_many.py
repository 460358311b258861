"""Any number of models: all pairs, one correction for the whole report, and an early end that does not lie."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from medloop.contracts import ModelRef, Record
from medloop.evaluate.early_stop import is_precise
from medloop.evaluate.predictions import EvalConfig
from medloop.evaluate.report import headlines
from medloop.evaluate.side_by_side import Evaluation
from medloop.loop.evaluation import evaluate_models
from medloop.settings import Settings
from medloop.testing.fakes import FakeGenerate
from medloop.testing.records import CALM, URGENT, make_emergencies, make_record

Put = Callable[[str, list[Record]], Path]
CONFIG = EvalConfig(splits=("red",), resamples=200, n=400)


def run(settings: Settings, fakes: dict[str, FakeGenerate], **changes: object) -> Evaluation:
    return evaluate_models(
        settings, models=[ModelRef(base=name) for name in fakes], config=CONFIG.model_copy(update=changes), name="t",
        markdown=settings.workspace.reports / "eval/t/eval_report.md", open_model=lambda ref, s: fakes[ref.base].opener()(ref, s),
    )  # fmt: skip


def test_all_pairs_are_compared_when_asked_and_corrected_together(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(30, ("en",)))
    fakes = {"a": FakeGenerate({}, CALM), "b": FakeGenerate({}, URGENT), "c": FakeGenerate({}, CALM)}
    first = run(settings, fakes).report
    every = run(settings, fakes, all_pairs=True).report
    assert {(d.first, d.second) for d in first.differences} == {("a", "b"), ("a", "c")}
    assert {(d.first, d.second) for d in every.differences} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert all(d.holm == (d.verdict != "no clear difference") for d in (*every.differences, *every.stratum_differences))
    assert [s.split(" is ")[0] for s in headlines(every)] == ["Against a, b", "Against a, c", "Against b, c"]
    assert "WORSE" in headlines(every)[2] and "WORSE" not in headlines(every)[1]


def test_chance_among_many_models_is_not_called_better_and_a_loss_is_never_hidden(settings: Settings, put_split: Put) -> None:
    """A gain that one comparison alone would show, and eleven models beside it: it is in the table, but not in the headline."""
    records = make_emergencies(40, ("en",))
    put_split("red_team.jsonl", records)
    questions = [record.conversation.question for record in records]
    slightly = FakeGenerate(dict.fromkeys(questions[:5], URGENT), CALM, name="s")
    fakes = {"base": FakeGenerate({}, CALM), "gain": slightly} | {f"m{n}": FakeGenerate({}, CALM, name=str(n)) for n in range(11)}
    report = run(settings, fakes).report
    gain = next(d for d in report.differences if d.second == "gain" and d.metric == "emergency")
    assert (gain.verdict, gain.holm) == ("better", False) and "gain is not clearly different overall" in headlines(report)[0]
    loss = run(settings, {"gain": slightly, **{name: fake for name, fake in fakes.items() if name != "gain"}}).report
    row = next(d for d in loss.differences if d.second == "base" and d.metric == "emergency")
    assert (row.verdict, row.holm) == ("worse", False) and "base is WORSE overall" in headlines(loss)[0]


def test_it_stops_at_the_first_declared_look_that_is_precise_enough(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(400, ("en",)))
    sure, unsure = FakeGenerate({}, URGENT), FakeGenerate({}, URGENT, name="u")
    done = run(settings, {"m": sure}, precision=0.05)
    assert done.report.config["looks"] == [50, 100, 200, 400] and done.report.config["asked"] == 100 == sure.calls
    summary = done.report.results[0].metrics["red"]["emergency"]
    assert (summary.n, summary.level) == (100, pytest.approx(1 - 0.05 / 4))
    assert "98.75 % interval" in done.markdown.read_text(encoding="utf-8")
    assert "and 100 were asked" in done.markdown.read_text(encoding="utf-8")
    run(settings, {"m": unsure}, precision=0.001)
    assert sure.calls + unsure.calls == 400, "the first hundred answers are in the cache"


def test_an_early_end_keeps_the_promised_coverage() -> None:
    """Of 200 evaluations with peeking allowed, at most about 5 % miss the truth; naive peeking at 95 % misses more."""
    rng = random.Random(1)
    config = CONFIG.model_copy(update={"precision": 0.08})
    missed = sum(not covered(rng, config) for _ in range(200))
    assert missed <= 16  # 5 % of 200, and two standard errors


def covered(rng: random.Random, config: EvalConfig) -> bool:
    """Whether the interval of the look that ends an evaluation contains the true share."""
    from medloop.bootstrap import interval
    from medloop.contracts import Sample, Score
    from medloop.evaluate.run import EvalAnswer, EvalScores

    values = [float(rng.random() < 0.3) for _ in range(config.n)]
    rows = [
        EvalScores(
            EvalAnswer(Sample(id=str(n), question="q", answer="a"), "red", "en", ("x",)),
            (Score(name="s", value=value, reason="r", author="a", version="1"),),
        )
        for n, value in enumerate(values)
    ]
    ended = next((n for n in config.looks if is_precise({"m": rows[:n]}, config)), config.n)
    row = interval(values[:ended], seed=1, name="s", resamples=200, level=config.level)
    return (row.low or 0.0) <= 0.3 <= (row.high or 1.0)


def test_looks_are_declared_and_grow() -> None:
    assert EvalConfig(n=1000, precision=0.03).looks == (125, 250, 500, 1000) and EvalConfig(n=1000).looks == (1000,)
    assert EvalConfig(n=20, precision=0.03).looks == (20,) and EvalConfig(n=1000).level == 0.95
    assert all(a < b for a, b in pairwise(EvalConfig(n=100, precision=0.03).looks))


def test_answers_that_never_differ_are_not_taken_for_certain(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", [make_record(n, f"{n}: I am coughing up blood") for n in range(60)])
    done = run(settings, {"m": FakeGenerate({}, URGENT)}, precision=0.03)
    assert done.report.results[0].metrics["red"]["emergency"].n == 60, "30 equal scores still leave a tenth open"
