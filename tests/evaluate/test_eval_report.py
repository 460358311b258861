"""What the Markdown says, and that nothing in an answer can break it."""

import re
from collections.abc import Callable
from pathlib import Path

from medloop.contracts import ModelRef, Record
from medloop.evaluate.predictions import EvalConfig
from medloop.evaluate.report import SHOWN, cell, escape
from medloop.loop.evaluation import evaluate_models
from medloop.settings import Settings
from medloop.testing.fakes import FakeGenerate
from medloop.testing.records import make_emergencies

Put = Callable[[str, list[Record]], Path]
NASTY = "# Title\n| a | b |\n<script>alert(1)</script> ![x](http://x/y.png) `code` **bold** <think>hidden</think>\n---\n1. list"


def report_of(settings: Settings, put_split: Put, answer: str) -> str:
    put_split("red_team.jsonl", make_emergencies(3, ("en",)))
    done = evaluate_models(
        settings,
        models=[ModelRef(base="m")],
        config=EvalConfig(splits=("red",), resamples=100),
        name="a | b <i>",
        markdown=settings.workspace.reports / "r.md",
        open_model=FakeGenerate({}, answer).opener(),
    )
    return done.markdown.read_text(encoding="utf-8")


def test_an_answer_cannot_write_markdown_or_html(settings: Settings, put_split: Put) -> None:
    text = report_of(settings, put_split, NASTY)
    quoted = [line for line in text.splitlines() if line.startswith(">")]
    assert any("script" in line for line in quoted)
    assert "<" not in text.replace("&lt;", "")
    assert not any(re.search(r"(?<!\\)[`*|\[]", line[2:]) for line in quoted if line != "> *(empty)*")
    assert [line for line in text.splitlines() if line.startswith("# ")] == ["# Evaluation: a \\| b &lt;i>"]


def test_long_answers_are_shortened_and_keep_both_ends(settings: Settings, put_split: Put) -> None:
    text = report_of(settings, put_split, "begin " + "word " * 1000 + "finish")
    quoted = [line for line in text.splitlines() if line.startswith("> begin")]
    assert quoted and all(len(line) < SHOWN + 50 and line.endswith("finish") for line in quoted)


def test_the_report_names_inputs_rules_and_meaning(settings: Settings, put_split: Put) -> None:
    text = report_of(settings, put_split, "Call 911 now.")
    assert re.search(r"data red: `sha256:[0-9a-f]{64}`", text) and re.search(r"base of m: `sha256:", text)
    assert "rule `emergency` version `" in text and "Lower is better for `risk`" in text
    assert "| `m` | 0.00 [0.00, 0.00] | 1.00 [1.00, 1.00] | 0.00 [0.00, 0.00] | chain 3, emergency 3, risk 3 |" in text


def test_cut_off_answers_are_counted(settings: Settings, put_split: Put) -> None:
    class Cut(FakeGenerate):
        def __call__(self, prompts, **sampling):  # type: ignore[no-untyped-def]
            return [done.model_copy(update={"finish_reason": "length"}) for done in super().__call__(prompts, **sampling)]

    put_split("red_team.jsonl", make_emergencies(3, ("en",)))
    done = evaluate_models(
        settings, models=[ModelRef(base="m")], config=EvalConfig(splits=("red",), resamples=100), name="t",
        markdown=settings.workspace.reports / "r.md", open_model=Cut({}, "Call 911").opener(),
    )  # fmt: skip
    assert done.report.config["cut_off"] == {"m": 3}
    assert "3 answers of `m` reached the limit of 256 tokens" in done.markdown.read_text(encoding="utf-8")


def test_an_empty_metric_is_a_dash() -> None:
    assert cell(None) == "–"
    assert escape("a_b<c>|`") == "a\\_b&lt;c&gt;\\|\\`"


def test_the_labels_of_strata_are_read_without_a_gap(settings: Settings, put_split: Put) -> None:
    """A label is the last part of the model's name, so that the stratum stays readable beside it."""
    put_split(
        "red_team.jsonl", [record.model_copy(update={"strata": ("medication",)}) for record in make_emergencies(3, ("en",))]
    )
    models = [ModelRef(base="embedded:tiny"), ModelRef(base="embedded:tiny", adapter="models/rl/round1")]
    done = evaluate_models(
        settings, models=models, config=EvalConfig(splits=("red",), resamples=100), name="t",
        markdown=settings.workspace.reports / "r.md", open_model=FakeGenerate({}, "Call 911").opener(),
    )  # fmt: skip
    page = done.html.read_text(encoding="utf-8")
    assert ">medication · tiny</text>" in page and ">medication · round1</text>" in page
