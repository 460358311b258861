"""The whole path: questions from the workspace, answers from a (fake) model, report on disk."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from medloop.contracts import EvalReport, ModelRef, Record
from medloop.errors import ConfigError, InputError
from medloop.evaluate.predictions import EvalConfig, read_splits
from medloop.evaluate.report import headlines
from medloop.evaluate.side_by_side import Evaluation
from medloop.loop.evaluation import evaluate_models
from medloop.settings import Settings
from medloop.store.files import jsonl
from medloop.testing.fakes import FakeGenerate
from medloop.testing.records import CALM, URGENT, make_emergencies, make_record

Put = Callable[[str, list[Record]], Path]
CONFIG = EvalConfig(splits=("red",), resamples=200, batch_size=2)


def run(settings: Settings, fakes: dict[str, FakeGenerate], config: EvalConfig = CONFIG, **more: object) -> Evaluation:
    """Each fake stands for the base model of its name."""
    return evaluate_models(
        settings,
        models=[ModelRef(base=name) for name in fakes],
        config=config,
        name="t",
        markdown=settings.workspace.reports / "eval/t/eval_report.md",
        open_model=lambda ref, s: fakes[ref.base].opener()(ref, s),
        **more,  # type: ignore[arg-type]
    )


def test_a_worse_model_is_called_worse_and_the_report_is_on_disk(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(30, ("en",)))
    done = run(settings, {"careful": FakeGenerate({}, URGENT), "calm": FakeGenerate({}, CALM)})
    verdicts = {d.metric: (d.verdict, d.separated) for d in done.report.differences}
    assert verdicts == {
        "chain": ("no clear difference", False),
        "emergency": ("worse", True),
        "risk": ("worse", True),
    }
    assert EvalReport.from_json(done.json.read_text(encoding="utf-8")) == done.report
    text = done.markdown.read_text(encoding="utf-8")
    assert (
        "**Against careful, calm is WORSE overall (WORSE on red emergency 1.00 → 0.00, red risk 0.00 → 0.50), WORSE in:" in text
    )
    assert "## Answers that got worse with `calm`" in text and "reference answers" in text


def test_a_model_with_broken_answers_is_never_called_better(settings: Settings, put_split: Put) -> None:
    """The rules like it, but its answers are truncated, or its training raised an alarm."""
    red = put_split("red_team.jsonl", make_emergencies(30, ("en",)))
    lines = [{"record_id": record.record_id, "text": URGENT, "finish_reason": "length"} for record in jsonl.read(red, Record)]
    jsonl.write(red.with_name("cut.jsonl"), lines)
    done = run(settings, {"calm": FakeGenerate({}, CALM)}, predictions=[red.with_name("cut.jsonl")])
    assert {d.verdict for d in done.report.differences if d.metric == "emergency"} == {"better"}
    for file in (done.markdown, done.html):
        text = file.read_text(encoding="utf-8")
        assert "ALARM cut: 100% of its answers are truncated." in text and "cut is better overall" not in text
    assert headlines(done.report)[-1].startswith("Against calm, cut cannot be called better because of the alarm")


@pytest.mark.parametrize(("action", "told"), [("warned", True), ("stopped", False)])
def test_an_alarm_of_its_training_goes_with_a_model(settings: Settings, put_split: Put, action: str, told: bool) -> None:
    put_split("red_team.jsonl", make_emergencies(12, ("en",)))
    adapter = settings.home / "models/rl/hacked"
    adapter.mkdir(parents=True)
    card = {
        "name": "hacked", "method": "grpo", "base": "b", "base_sha256": "sha256:" + "0" * 64, "inputs": {}, "config": {}, "seed": 1,
        "trainable_parameters": 1, "total_parameters": 2, "versions": {}, "started": "2026-02-03T12:00:00Z",
        "finished": "2026-02-03T12:00:00Z", "alarms": ["step 9: 84% urge."], "alarm_action": action,
    }  # fmt: skip
    (adapter / "card.json").write_text(json.dumps(card), encoding="utf-8")
    fake = FakeGenerate({}, URGENT)
    done = evaluate_models(
        settings, models=[ModelRef(base="b", adapter="models/rl/hacked")], config=CONFIG, name="t", open_model=fake.opener(),
        markdown=settings.workspace.reports / "eval/t/eval_report.md",
    )  # fmt: skip
    assert ("Its training raised an alarm: step 9: 84% urge." in done.markdown.read_text(encoding="utf-8")) == told


def test_a_second_run_asks_nothing_and_says_the_same(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(7, ("en",)))
    fake = FakeGenerate({}, URGENT)
    first = run(settings, {"m": fake})
    predictions = (first.markdown.parent / "predictions_m.jsonl").read_bytes()
    second = run(settings, {"m": fake})
    assert fake.calls == 7
    assert first.report.results == second.report.results
    assert (first.markdown.parent / "predictions_m.jsonl").read_bytes() == predictions


def test_a_killed_run_goes_on_where_it_stopped(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(40, ("en",)))
    healthy, dying = FakeGenerate({}, URGENT), FakeGenerate({}, URGENT)
    answer = dying.__call__

    class Dying(FakeGenerate):
        def __call__(self, prompts, **sampling):  # type: ignore[no-untyped-def]
            if dying.calls >= 16:
                raise KeyboardInterrupt
            return answer(prompts, **sampling)

    with pytest.raises(KeyboardInterrupt):
        run(settings, {"m": Dying({}, URGENT)})
    done = run(settings, {"m": healthy})
    assert healthy.calls == 40 - 16
    assert done.report.results[0].metrics["red"]["emergency"].n == 40


def test_a_slow_model_stores_each_batch_and_says_where_it_is(
    settings: Settings, put_split: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a small model on a CPU: fewer questions than go into one call, stopped within it."""
    put_split("red_team.jsonl", make_emergencies(12, ("en",)))
    monkeypatch.setattr("medloop.evaluate.examined.SAVE_S", 0.0)
    stored: list[int] = []

    def progress(label: str) -> Callable[[int, int], None]:
        def told(done: int, total: int) -> None:
            files = list(settings.workspace.answer_cache.glob("*.jsonl"))
            stored.append(sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files))
            reports.append((done, total))
            if done == 6:
                raise KeyboardInterrupt

        return told

    reports: list[tuple[int, int]] = []
    with pytest.raises(KeyboardInterrupt):
        run(settings, {"m": FakeGenerate({}, URGENT)}, progress=progress)
    assert reports == [(0, 12), (2, 12), (4, 12), (6, 12)]
    assert stored == [0, 2, 4, 6]
    again = FakeGenerate({}, URGENT)
    run(settings, {"m": again})
    assert again.calls == 12 - 6


def test_a_fast_model_writes_once_a_call_and_loses_nothing_that_is_answered(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(12, ("en",)))

    def progress(label: str) -> Callable[[int, int], None]:
        def told(done: int, total: int) -> None:
            if done == 6:
                assert not list(settings.workspace.answer_cache.glob("*.jsonl"))
                raise KeyboardInterrupt

        return told

    with pytest.raises(KeyboardInterrupt):
        run(settings, {"m": FakeGenerate({}, URGENT)}, progress=progress)
    again = FakeGenerate({}, URGENT)
    run(settings, {"m": again})
    assert again.calls == 12 - 6


def test_a_changed_model_or_setting_asks_anew(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(5, ("en",)))
    run(settings, {"m": FakeGenerate({}, CALM)})
    retrained = FakeGenerate({}, URGENT)
    done = run(settings, {"m": retrained})
    assert retrained.calls == 5 and done.report.results[0].metrics["red"]["emergency"].mean == 1.0
    run(settings, {"m": retrained}, CONFIG.model_copy(update={"max_new_tokens": 9}))
    assert retrained.calls == 10
    run(settings, {"m": retrained})
    assert retrained.calls == 10, "answers given before are kept, whatever was asked in between"


def test_a_question_that_does_not_fit_is_missing_not_zero(settings: Settings, put_split: Put) -> None:
    records = make_emergencies(6, ("en",))
    put_split("red_team.jsonl", records)
    known = {r.conversation.question: URGENT for r in records[:4]}
    summary = run(settings, {"m": FakeGenerate(known)}).report.results[0].metrics["red"]["emergency"]
    assert (summary.mean, summary.n, summary.missing) == (1.0, 4, 2)


def test_predictions_made_elsewhere_stand_beside_models(settings: Settings, put_split: Put, tmp_path: Path) -> None:
    records = make_emergencies(12, ("en",))
    put_split("red_team.jsonl", records)
    path = tmp_path / "clinic.jsonl"
    jsonl.write(path, [{"record_id": r.record_id, "text": CALM} for r in records[:11]])
    done = run(settings, {"m": FakeGenerate({}, URGENT)}, predictions=[path])
    clinic = next(r for r in done.report.results if r.label == "clinic")
    assert (clinic.metrics["red"]["emergency"].mean, clinic.metrics["red"]["emergency"].missing) == (0.0, 1)
    assert done.report.inputs["predictions clinic"].startswith("sha256:")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([{"record_id": "x", "text": "a"}], "answers none of the questions"),
        ([{"text": "a"}], "line 1: no record_id"),
        ([{"record_id": "x", "text": 1}], "line 1: the answer must be text"),
        ([{"record_id": "x"}], "line 1: no answer"),
        ([{"record_id": "x", "text": "a"}] * 2, "line 2: duplicate id .first seen on line 1"),
    ],
)
def test_bad_predictions_are_refused_by_line(
    settings: Settings, put_split: Put, tmp_path: Path, lines: list[dict], says: str
) -> None:
    put_split("red_team.jsonl", make_emergencies(3, ("en",)))
    jsonl.write(tmp_path / "p.jsonl", lines)
    with pytest.raises(InputError, match=says):
        run(settings, {}, predictions=[tmp_path / "p.jsonl"])


def test_the_draw_does_not_depend_on_the_order_of_the_file(settings: Settings, put_split: Put) -> None:
    records = make_emergencies(30, ("en",))
    config = EvalConfig(splits=("red",), n=10)
    put_split("red_team.jsonl", records)
    rows = read_splits(settings.workspace.processed, config)["red"]
    put_split("red_team.jsonl", records[::-1])
    assert rows == read_splits(settings.workspace.processed, config)["red"] and len(rows) == 10


def test_splits_must_be_there_and_be_named_rightly(settings: Settings, put_split: Put) -> None:
    with pytest.raises(InputError, match="has no questions"):
        read_splits(settings.workspace.processed, EvalConfig())
    with pytest.raises(InputError, match=r"gold_set\.jsonl does not exist"):
        read_splits(settings.workspace.processed, EvalConfig(splits=("gold",)))
    with pytest.raises(InputError, match="no split 'blue'"):
        read_splits(settings.workspace.processed, EvalConfig(splits=("blue",)))
    put_split("dev.jsonl", make_emergencies(2, ("en",)))
    assert list(read_splits(settings.workspace.processed, EvalConfig())) == ["dev"]


def test_records_without_answers_give_no_reference_row(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", [make_record(n, f"{n}: I am coughing up blood") for n in range(3)])
    assert [r.label for r in run(settings, {"m": FakeGenerate({}, CALM)}).report.results] == ["m"]


def test_a_report_without_any_number_can_be_read_back(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(2, ("en",)))
    done = run(settings, {"m": FakeGenerate({})})
    assert EvalReport.from_json(done.json.read_text(encoding="utf-8")) == done.report
    assert done.report.results[0].metrics["red"]["chain"].mean is None


def test_two_adapters_of_the_same_name_keep_apart_and_one_model_twice_is_refused(settings: Settings, put_split: Put) -> None:
    put_split("red_team.jsonl", make_emergencies(2, ("en",)))
    fake = FakeGenerate({}, URGENT)
    models = [ModelRef(base="b", adapter="x/sft"), ModelRef(base="b", adapter="y/sft")]
    markdown = settings.workspace.reports / "rl_stage/eval_report_round1.md"
    done = evaluate_models(settings, models=models, config=CONFIG, name="t", markdown=markdown, open_model=fake.opener())
    assert [r.label for r in done.report.results[:2]] == ["b+x/sft", "b+y/sft"]
    assert (
        markdown.parent / "eval_report_round1_predictions_b+x_sft.jsonl"
    ).is_file() and done.json.name == "eval_report_round1.json"
    with pytest.raises(ConfigError, match="named twice"):
        evaluate_models(settings, models=models[:1] * 2, config=CONFIG, name="t", markdown=markdown, open_model=fake.opener())
