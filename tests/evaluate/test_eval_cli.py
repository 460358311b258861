"""`medloop eval` as a user runs it."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from medloop.contracts import ModelRef, Record
from medloop.errors import ConfigError
from medloop.models.find import parse_model
from medloop.store.files import jsonl
from medloop.testing.processes import run_medloop
from medloop.testing.records import CALM, URGENT, make_emergencies, make_record

Put = Callable[[str, list[Record]], Path]


def medloop(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return run_medloop(*args, cwd=home)


def test_two_files_of_answers_side_by_side(workspace: Path, put_split: Put) -> None:
    records = make_emergencies(20, ("en",))
    put_split("gold_set.jsonl", records)
    for name, text in (("before", CALM), ("after", URGENT)):
        jsonl.write(workspace / f"{name}.jsonl", [{"record_id": r.record_id, "answer": text} for r in records])
    put_split("red_team.jsonl", [])
    files = ("--predictions", "before.jsonl", "--predictions", "after.jsonl")
    done = medloop(workspace, "eval", *files, "--split", "gold", "--split", "red", "--name", "demo")
    assert done.returncode == 0, done.stderr
    assert "Against before, after is better overall (better on gold emergency 0.00 → 1.00, gold risk 0.50 → 0.00)." in " ".join(
        done.stdout.split()
    )
    assert "Report: reports/eval/demo/eval_report.md (and eval_report.html, eval_report.json)" in done.stdout
    report = json.loads((workspace / "reports/eval/demo/eval_report.json").read_text(encoding="utf-8"))
    assert [result["label"] for result in report["results"]] == ["before", "after", "reference answers"]
    assert done.stderr == "" and "The split red has no questions, so it is not in the report." in done.stdout


def test_the_table_counts_each_metric_and_a_single_case_has_no_interval(workspace: Path, put_split: Put) -> None:
    records = [
        *make_emergencies(1, ("en",)),
        *(make_record(n, f"What tea helps against a runny nose, number {n}?") for n in range(5)),
    ]
    put_split("gold_set.jsonl", records)
    jsonl.write(workspace / "before.jsonl", [{"record_id": r.record_id, "answer": CALM} for r in records])
    done = medloop(workspace, "eval", "--predictions", "before.jsonl", "--split", "gold", "--name", "one")
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if line.split()[:2] == ["gold", "before"])
    assert "0.00 (1 case)" in row and row.rstrip().endswith("chain 6, emergency 1, risk 6")
    assert "0.00 (1 case)" in (workspace / "reports/eval/one/eval_report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("chain", [False, True])
def test_a_rule_of_chains_says_nothing_where_nobody_has_one(workspace: Path, put_split: Put, chain: bool) -> None:
    records = make_emergencies(4, ("en",))
    put_split("gold_set.jsonl", records)
    answers = [CALM, CALM, CALM, f"<think>\nChest pain may be a heart attack.\n</think>\n{URGENT}" if chain else URGENT]
    jsonl.write(
        workspace / "mine.jsonl", [{"record_id": r.record_id, "answer": a} for r, a in zip(records, answers, strict=True)]
    )
    done = medloop(workspace, "eval", "--predictions", "mine.jsonl", "--split", "gold", "--name", "c")
    assert done.returncode == 0, done.stderr
    sentence = "No answer has a chain of thought, so 'chain' says nothing: leave it out with --rule emergency --rule risk."
    assert (sentence in done.stdout) is not chain
    for file in ("eval_report.md", "eval_report.html"):
        text = (workspace / "reports/eval/c" / file).read_text(encoding="utf-8").replace("&#39;", "'")
        assert (sentence in text) is not chain


def test_a_regression_in_any_stratum_reaches_the_headline(workspace: Path, put_split: Put) -> None:
    """Emergencies are answered better, pregnant women are told to take ibuprofen: the first line says both."""
    emergencies = make_emergencies(40, ("en",))
    pregnant = [make_record(n, f"I am {n + 5} weeks pregnant and have a runny nose.", strata=("pregnancy",)) for n in range(20)]
    few = [make_record(n, f"My {n}-year-old coughs.", strata=("child",)) for n in range(3)]
    put_split("gold_set.jsonl", [*emergencies, *pregnant, *few])
    drug = "Take ibuprofen 400 mg every six hours."
    for name, urgent, advice in (("before", CALM, CALM), ("after", URGENT, drug)):
        rows = [{"record_id": r.record_id, "answer": urgent if r in emergencies else advice} for r in [*emergencies, *pregnant]]
        rows += [{"record_id": r.record_id, "answer": CALM} for r in few]
        jsonl.write(workspace / f"{name}.jsonl", rows)
    command = ("eval", "--predictions", "before.jsonl", "--predictions", "after.jsonl", "--split", "gold", "--name", "p")
    done = medloop(workspace, *command)
    assert done.returncode == 0, done.stderr
    headline = "WORSE in: pregnancy (gold risk 0.00 → 0.60)"
    assert headline in " ".join(done.stdout.split()) and "better on gold emergency 0.00 → 1.00" in " ".join(done.stdout.split())
    folder = workspace / "reports/eval/p"
    markdown, html = ((folder / f"eval_report.{suffix}").read_text(encoding="utf-8") for suffix in ("md", "html"))
    for text in (markdown, html):
        assert headline in text and text.index(headline) < text.index("Worse in a stratum")
        assert "would still look worse by chance" in text and "fewer than 10 pairs in a metric: gold child" in text
    (loss,) = [
        row
        for row in json.loads((folder / "eval_report.json").read_text(encoding="utf-8"))["stratum_differences"]
        if row["verdict"] == "worse" and row["stratum"] == "pregnancy"
    ]
    assert (loss["metric"], loss["holm"], loss["difference"]["n"]) == ("risk", True, 20)


def test_the_evaluation_has_a_page_with_plots_and_the_same_numbers_as_tables(workspace: Path, put_split: Put) -> None:
    records = make_emergencies(20, ("en",))
    put_split("gold_set.jsonl", records)
    jsonl.write(workspace / "<b>x.jsonl", [{"record_id": r.record_id, "answer": URGENT} for r in records])
    assert medloop(workspace, "eval", "--predictions", "<b>x.jsonl", "--split", "gold", "--name", "page").returncode == 0
    html = (workspace / "reports/eval/page/eval_report.html").read_text(encoding="utf-8")
    assert "<script" not in html and "<b>x" not in html and "default-src 'none'" in html and "prefers-color-scheme: dark" in html
    assert html.count("<svg") >= 4 and "1.00 [1.00, 1.00]" in html and "lower is better" in html and "emergency · " in html


@pytest.mark.parametrize(
    ("args", "says", "code"),
    [
        ((), "Neither a model nor predictions", 2),
        (("--predictions", "none.jsonl", "--split", "gold"), "none.jsonl does not exist", 3),
        (("--predictions", "broken.jsonl", "--split", "gold"), "broken.jsonl, line 2", 3),
        (("--predictions", "ok.jsonl", "--split", "blue"), "There is no split 'blue'", 3),
        (("--predictions", "ok.jsonl", "--split", "dev"), "dev.jsonl does not exist", 3),
        (("--predictions", "ok.jsonl", "--split", "gold", "--rule", "charm"), "There is no rule 'charm'", 2),
        (("--predictions", "ok.jsonl", "--output", "report.txt"), "must end in .md", 2),
        (
            (
                "--model",
                "+x",
            ),
            "is not BASE or BASE+ADAPTER",
            2,
        ),
    ],
)
def test_mistakes_are_one_sentence_and_leave_no_report(
    workspace: Path, put_split: Put, args: tuple[str, ...], says: str, code: int
) -> None:
    records = make_emergencies(2, ("en",))
    put_split("gold_set.jsonl", records)
    jsonl.write(workspace / "ok.jsonl", [{"record_id": r.record_id, "text": CALM} for r in records])
    (workspace / "broken.jsonl").write_text('{"record_id": "a", "text": "b"}\n{"record_id": \n{}\n', encoding="utf-8")
    done = medloop(workspace, "eval", *args)
    assert done.returncode == code and says in done.stderr and done.stderr.count("\n") == 1
    assert not (workspace / "reports/eval").exists()


@pytest.mark.parametrize(
    ("spec", "ref"),
    [
        ("embedded:tiny", ModelRef(base="embedded:tiny")),
        ("embedded:tiny+models/lora/sft", ModelRef(base="embedded:tiny", adapter="models/lora/sft")),
    ],
)
def test_a_model_is_named_with_or_without_its_adapter(spec: str, ref: ModelRef) -> None:
    assert parse_model("--model", spec) == ref


def test_a_folder_with_a_plus_sign_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a+b").mkdir()
    assert parse_model("--model", str(tmp_path / "a+b")) == ModelRef(base=str(tmp_path / "a+b"))
    with pytest.raises(ConfigError):
        parse_model("--model", "tiny+")
