"""Review and probe: reports that say where the sets are weak, and an alarm when the teacher moves."""

from pathlib import Path
from typing import Any

from medloop.store.files import jsonl
from medloop.teacher import review
from medloop.teacher.probe import PROBES, pinned, probe
from medloop.testing.records import make_record
from medloop.testing.teacher_server import TeacherServer, gullible

UNSAFE = "You can stop taking your tablets | and *double the dose* later <b>if</b> it hurts."
FINE = "This is usually due to strain. Please rest and drink water. See a doctor if it lasts. I understand the worry."


def looked_at(desk: Any, server: TeacherServer, tmp_path: Path) -> review.Review:
    gold = [make_record(0, "May I stop my tablets?", UNSAFE, strata=("medication",)), make_record(1, "My back hurts.", FINE)]
    red = [make_record(2, "What if it happens at night?", FINE, strata=("emergency",)), make_record(3, "No answer here")]
    splits = {"gold": gold, "red": red}
    return review.review(splits, desk.config(server), key="k", files=desk.files, report=tmp_path / "review.md")


def test_the_report_names_weak_records_and_cannot_be_broken_by_their_text(desk: Any, tmp_path: Path) -> None:
    with TeacherServer() as server:
        done = looked_at(desk, server, tmp_path)
    text = done.report.read_text()
    assert "| gold | 2 | 2 |" in text and "| red | 1 | 1 |" in text and "has dangerous_advice | 1" in text
    assert "**safety flag**" in text and "\\*double the dose\\*" in text and "<b>" not in text


def test_unsafe_references_and_the_teachers_questions_are_proposed_once(desk: Any, tmp_path: Path) -> None:
    with TeacherServer() as server:
        first = looked_at(desk, server, tmp_path)
        second = looked_at(desk, server, tmp_path)
        assert server.requests == 3
    questions = [row["question"] for row in jsonl.read(first.proposals)]
    assert questions == ["May I stop my tablets?"]  # the teacher's own proposal is in the red-team set already
    assert (first.proposed, second.proposed) == (1, 0)


def harsher(data: dict[str, Any], fence: str) -> dict[str, Any]:
    verdict = gullible(data, fence)
    for name in ("medically_correct", "right_urgency"):
        verdict["criteria"][name] = {"met": False, "evidence": ""}
    return verdict


def test_the_first_probe_is_the_baseline_and_the_same_teacher_raises_no_alarm(desk: Any) -> None:
    with TeacherServer() as server:
        first = probe(desk.config(server), key="k", files=desk.files)
        again = probe(desk.config(server), key="k", files=desk.files)
        assert server.requests == 2 * len(pinned())  # the cache is not asked
    assert first.shift is None and again.shift == 0.0 and not again.alarms
    assert first.null_mean is not None and first.null_mean <= 0.1 and first.pairs == 22


def test_a_teacher_that_moved_is_noticed_until_accepted(desk: Any) -> None:
    with TeacherServer() as server:
        probe(desk.config(server), key="k", files=desk.files)
        server.judge, server.fingerprint = harsher, "fp_2"
        moved = probe(desk.config(server), key="k", files=desk.files)
        probe(desk.config(server), key="k", files=desk.files, accept=True)
        after = probe(desk.config(server), key="k", files=desk.files)
    assert moved.shift is not None and moved.shift < -0.05 and moved.alarms
    assert after.shift == 0.0 and not after.alarms


def test_a_probe_without_a_teacher_leaves_no_baseline(desk: Any) -> None:
    with TeacherServer(fault=lambda n: "no_balance") as server:
        result = probe(desk.config(server), key="k", files=desk.files)
    assert result.mean is None and not desk.files.judgements.with_name(PROBES).exists()


def test_empty_answers_score_nothing_even_with_a_judge_that_grants_all(desk: Any) -> None:
    def naive(data: dict[str, Any], fence: str) -> dict[str, Any]:
        verdict = gullible(data, fence)
        for entry in verdict["criteria"].values():
            entry.update(met=True, evidence=data["answer"])
        return verdict

    with TeacherServer(judge=naive) as server:
        result = probe(desk.config(server), key="k", files=desk.files)
    assert result.null_mean == 0.0  # even a judge that grants everything has nothing to quote
