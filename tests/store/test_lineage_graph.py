"""Lineage both ways: from a record to all that contains it, and from a model down to the records. On both databases."""

from __future__ import annotations

import pytest

from medloop.contracts import ModelVersion
from medloop.contracts.gate import GateCheck, GateResult
from medloop.contracts.lineage import LineageGraph
from medloop.data.feedback.build import FeedbackConfig
from medloop.loop.feedback import build_from_feedback
from medloop.store import catalog
from medloop.store import lineage_graph as module
from medloop.store.files.atomic import file_sha256
from medloop.store.lineage_graph import RECORDS, UnknownSubjectError, lineage_graph, newest_made, taught_records, teaching_of
from medloop.store.records import crud, lineage
from medloop.store.records.gates import save_gate
from medloop.store.records.registry import add_version
from medloop.testing.feedback import make_correction, make_preference, make_thumb
from medloop.testing.lineage import make_model
from medloop.web.lineage_view import answer
from medloop.web.words import Translator


def labels(graph: LineageGraph, kind: str) -> set[str]:
    return {node.label for node in graph.nodes if node.kind == kind}


@pytest.fixture
def world(store):
    """Feedback built into a dataset; SFT learns the golden answers, RL goes on from it, DPO learns only the pairs."""
    records = []
    for n in range(12):
        bad, good = f"Run {n} miles.", f"Rest {n} days and see a doctor."
        records += [make_preference(n, good, bad, "a"), make_correction(n, bad, good), make_thumb(n, good, True)]
    crud.add(store, records, actor="test")
    built = build_from_feedback(store, FeedbackConfig(name="week"), seed=1, actor="test")
    files = {name: file_sha256(built.folder / name) for name in ("sft_train.jsonl", "preferences.jsonl", "sft_test.jsonl")}
    sft = make_model(store, "models/lora/sft", inputs={"train": files["sft_train.jsonl"], "dev": files["sft_test.jsonl"]})
    rl = make_model(store, "models/rl/round1", inputs={"adapter": sft.fingerprint}, parent=sft.fingerprint, method="ppo")
    dpo = make_model(store, "models/lora/dpo", inputs={"preference": files["preferences.jsonl"]}, method="dpo")
    inputs = {"adapter of rl": rl.fingerprint, "base of rl": "sha256:" + "0" * 64}
    report = store.settings.workspace.reports / "eval/rl/eval_report.json"
    catalog.register_file(store, "evaluation", report, "sha256:" + "e" * 64, {"name": "rl", "inputs": inputs}, actor="test")
    return built, files, sft, rl, dpo


def record_in(store, sha256: str, not_in: str) -> str:
    return min(set(lineage.records_of(store, sha256)) - set(lineage.records_of(store, not_in)))


def test_a_record_leads_to_every_model_that_learnt_it_through_parents_and_to_no_other(store, world):
    _, files, *_ = world
    correction = record_in(store, files["sft_train.jsonl"], files["sft_test.jsonl"])
    graph = lineage_graph(store, correction)
    assert graph.subject.kind == "record" and labels(graph, "dataset") == {"data/feedback/week"}
    assert labels(graph, "model") == {"models/lora/sft", "models/rl/round1", "models/lora/dpo"}
    assert labels(graph, "evaluation") == {"reports/eval/rl/eval_report.json"}
    preference = record_in(store, files["preferences.jsonl"], files["sft_train.jsonl"])
    only_pairs = lineage_graph(store, preference)
    assert labels(only_pairs, "model") - {"models/lora/sft"} == {"models/lora/dpo"} and not labels(only_pairs, "evaluation")


def test_a_record_that_a_model_was_only_measured_with_taught_neither_it_nor_its_children(store, world):
    _, files, *_ = world
    held_out = record_in(store, files["sft_test.jsonl"], files["sft_train.jsonl"])
    graph = lineage_graph(store, held_out)
    assert "models/rl/round1" not in labels(graph, "model")
    edges = [edge for edge in graph.edges if edge.role == "dev"]
    assert len(edges) == 1 and not edges[0].teaches


def test_a_model_leads_down_to_its_records_by_page_without_a_double(store, world):
    _, files, _, rl, _ = world
    graph = lineage_graph(store, "models/rl/round1")
    expected = lineage.records_of(store, files["sft_train.jsonl"])
    assert graph.records == len(expected) and labels(graph, "records") == {f"{len(expected):,}"}
    into_sft = {(edge.role, edge.records) for edge in graph.edges if edge.target == world[2].sha256}
    assert ("train", len(expected)) in into_sft and any(edge.source == RECORDS for edge in graph.edges)
    first = taught_records(store, rl.sha256[7:19], limit=5)
    rest = taught_records(store, "round1", after=first.next, limit=1000)
    assert [row.record_id for row in (*first.items, *rest.items)] == expected and rest.next is None
    assert {row.kind for row in rest.items} <= {"feedback", "preference", "correction"}


def test_the_gates_verdict_stands_between_the_model_and_what_follows(store, world):
    _, files, _, rl, _ = world
    verdict = GateResult(
        artifact=rl.sha256, weights="sha256:" + "3" * 64, base="sha256:" + "0" * 64, baseline_artifact="sha256:" + "4" * 64, label="tiny+round1", baseline="tiny", report="sha256:" + "e" * 64,
        config="sha256:" + "c" * 64, outcome="pass", checks=(GateCheck(name="critical", outcome="pass", reason="none is new"),),
    )  # fmt: skip
    gate = save_gate(store, verdict, actor="test")
    card = {"model": "m", "version": 1, "artifact": rl.sha256, "name": "round1", "method": "ppo", "base": "tiny", "inputs": {}}
    draft = ModelVersion(**card, base_sha256="sha256:" + "0" * 64, gate=gate, registered_by="test")
    add_version(store, draft, "models/rl/round1", actor="test")
    graph = lineage_graph(store, record_in(store, files["sft_train.jsonl"], files["sft_test.jsonl"]))
    assert labels(graph, "version") == {"m/1"}
    into_gate = {edge.role for edge in graph.edges if edge.target == gate}
    assert (
        into_gate == {"examined", "evaluation"} and lineage_graph(store, gate).records == lineage_graph(store, "round1").records
    )


def test_a_reward_model_connects_its_pairs_with_the_policy_that_it_rewarded(store, world):
    _, files, *_ = world
    judge = make_model(
        store, "models/reward/rm", inputs={"pairs": files["preferences.jsonl"]}, method="reward", kind="reward model"
    )
    part = {"weight": 1.0, "version": f"model-{judge.fingerprint[7:23]}"}
    make_model(
        store, "models/rl/judged", inputs={}, method="grpo", config={"objective": {"version": "1", "parts": {"model": part}}}
    )
    preference = record_in(store, files["preferences.jsonl"], files["sft_train.jsonl"])
    graph = lineage_graph(store, preference)
    assert {"models/reward/rm", "models/rl/judged", "models/lora/dpo"} == labels(graph, "model") - {"models/lora/sft"}
    assert "models/lora/dpo" not in labels(lineage_graph(store, "judged"), "model")


def test_clinicians_see_what_they_sent_and_nothing_of_others(store, world):
    _, files, *_ = world
    name = lineage.records_of(store, files["sft_train.jsonl"])[0]
    with pytest.raises(UnknownSubjectError):
        lineage_graph(store, name, sender="usr_stranger")
    assert taught_records(store, "round1", sender="usr_stranger").items == ()
    own = make_correction(50, "Run.", "Rest.", recorded_by="usr_li")
    crud.add(store, [own], actor="test")
    with store.write() as conn:
        lineage.add_records(conn, files["sft_train.jsonl"], [own.correction_id])
    assert [row.record_id for row in taught_records(store, "round1", sender="usr_li").items] == [own.correction_id]
    assert "models/rl/round1" in labels(lineage_graph(store, own.correction_id, sender="usr_li"), "model")


def test_a_replaced_model_and_an_unknown_name_are_told_apart(store, world):
    make_model(store, "models/rl/round1", inputs={}, method="ppo")
    old = next(node for node in lineage_graph(store, world[3].sha256).nodes if node.id == world[3].sha256)
    assert old.replaced and not lineage_graph(store, "round1").subject.replaced
    assert [node.label for node in newest_made(store, limit=1)] == ["models/rl/round1"]
    with pytest.raises(UnknownSubjectError, match="nothing-here"):
        lineage_graph(store, "nothing-here")


def test_a_large_graph_is_cut_with_a_word_but_who_taught_a_model_is_not(store, world, monkeypatch):
    _, files, _, rl, _ = world
    expected = lineage.records_of(store, files["sft_train.jsonl"])
    whole = lineage_graph(store, expected[0])
    monkeypatch.setattr(module, "MOST_DRAWN", 1)
    assert [row.record_id for row in teaching_of(store, rl.sha256).records] == expected
    assert [row.record_id for row in taught_records(store, "round1", limit=1000).items] == expected
    cut = lineage_graph(store, expected[0])
    assert len(cut.nodes) == 1 and cut.truncated == len(whole.nodes) - 1 and whole.truncated == 0
    t = Translator("en")
    assert f"{cut.truncated} more datasets" in answer(cut, t) and "more datasets" not in answer(whole, t)
    assert lineage_graph(store, "round1").records == len(expected)
