"""Closeness to golden answers: from a file, from clinicians' corrections, from the gold set."""

from pathlib import Path

import numpy as np
import pytest
from suite_desk import by_metric, put_cases, result_of

from medloop.contracts import Correction, Record, SuiteConfig
from medloop.errors import InputError
from medloop.evaluate.suites.golden import Golden, GoldenCase, rouge_l, token_f1, tokens_of
from medloop.loop import reference_suites
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import crud
from medloop.store.records.users import add_user
from medloop.testing.fakes import FakeGenerate
from medloop.testing.records import make_record


def test_words_and_characters_are_compared_as_worked_out_by_hand() -> None:
    assert tokens_of("Drink 1.5 L, ok? 多喝水") == ["drink", "1.5", "l", "ok", "多", "喝", "水"]
    # shared a, b, c: 2 * 3 / (4 + 5); the longest common subsequence of "a b c d" and "b a c x y" is "a c" or "b c": 2 * 2 / 9
    assert token_f1("a b c d".split(), "b a c x y".split()) == pytest.approx(6 / 9)
    assert rouge_l("a b c d".split(), "b a c x y".split()) == pytest.approx(4 / 9)
    assert token_f1(tokens_of("多喝水"), tokens_of("多喝温水")) == pytest.approx(6 / 7)
    assert rouge_l(["a", "a"], ["a"]) == pytest.approx(2 / 3), "a token is matched once"
    assert token_f1([], ["a"]) == rouge_l(["a"], []) == 0


def test_the_closest_of_several_golden_answers_counts(settings: Settings, tmp_path: Path) -> None:
    cases = put_cases(
        tmp_path, [{"id": "a", "question": "What helps?", "golden": ["Rest and drink tea", "Call an ambulance now"]}]
    )
    result = result_of(settings, FakeGenerate({}, "<think>Rest and drink tea</think>Call an ambulance"), f"golden={cases}")
    scores = by_metric(result.cases[0])
    assert scores["token_f1"] == scores["rouge_l"] == pytest.approx(6 / 7), "the chain of thought is not compared"


def test_without_an_encoder_the_report_says_so_and_an_unread_language_is_missing() -> None:
    cases = [
        GoldenCase.model_validate(
            {"id": lang, "messages": [{"role": "user", "content": "q"}], "golden": [text], "language": lang}
        )
        for lang, text in (("en", "Rest and drink"), ("zh", "多喝水"))
    ]
    fake = FakeGenerate({}, "Rest and sleep")

    def english_only(pairs: list[tuple[str, str]]) -> list[float | None]:
        return [None if not golden.isascii() else -0.2 for _, golden in pairs]

    class Model:
        label, identity = "m", {}

        def answer(self, prompts, config, passages=()):  # type: ignore[no-untyped-def]
            return fake(prompts)

    plain = Golden(cases, str).run(Model(), SuiteConfig(), lambda done, total: None)
    assert "shared words only" in plain.notes[0] and [m.name for m in plain.metrics] == ["token_f1", "rouge_l"]
    encoded = Golden(cases, str, english_only, "minilm@1").run(Model(), SuiteConfig(), lambda done, total: None)  # type: ignore[arg-type]
    by_id = {case.id: by_metric(case) for case in encoded.cases}
    assert by_id["en"]["embedding"] == 0 and by_id["zh"]["embedding"] == "minilm@1 does not read this language"
    assert encoded.notes == ("1 of 2 cases have no embedding: minilm@1 does not read this language.",)


def test_corrections_count_if_a_clinician_wrote_them_with_consent_and_nobody_replaced_them(settings: Settings) -> None:
    with open_store(settings) as store:
        doctor = add_user(store, "dr-li", "clinician", actor="cli").user_id
        engineer = add_user(store, "eve", "engineer", actor="cli").user_id
        old = Correction(prompt="Q1 my head hurts", original="o", golden="old", clinician_id=doctor, consent=("evaluation",))
        new = old.model_copy(
            update={"correction_id": "cor_new", "golden": "Rest, call 13800138000", "supersedes": old.correction_id}
        )
        untold = Correction(prompt="Q2", original="o", golden="g", clinician_id=doctor, consent=("training",))
        amateur = Correction(prompt="Q3", original="o", golden="g", clinician_id=engineer, consent=("evaluation",))
        crud.add(store, [old, new, untold, amateur], actor="cli")
    suite = reference_suites.golden_suite(settings, None)
    assert [(case.id, case.golden) for case in suite.cases] == [("cor_new", ("Rest, call [PHONE_1]",))]


def test_reviewed_answers_of_the_gold_set_are_golden(settings: Settings) -> None:
    folder = settings.workspace.processed
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.raises(InputError, match="There are no golden answers"):
        reference_suites.golden_suite(settings, None)
    records = [make_record(n, f"Question {n}", "<think>x</think>Drink tea.") for n in range(2)]
    rows: list[Record] = [records[0].model_copy(update={"reviewed": True}), records[1]]
    (folder / "gold_set.jsonl").write_text("".join(row.canonical_json() + "\n" for row in rows), encoding="utf-8")
    [case] = reference_suites.golden_suite(settings, None).cases
    assert case.golden == ("Drink tea.",) and case.question == "Question 0"


@pytest.mark.slow
def test_the_embedded_encoder_finds_the_same_meaning(settings: Settings, tmp_path: Path) -> None:
    rows = [{"id": "a", "question": "q", "golden": "Go to the hospital at once."}, {"id": "b", "question": "p", "golden": "Paint the fence green."}]  # fmt: skip
    result = result_of(settings, FakeGenerate({}, "Seek emergency care now."), f"golden={put_cases(tmp_path, rows)}")
    near, far = (by_metric(case)["embedding"] for case in sorted(result.cases, key=lambda case: case.id))
    assert near > far + 0.2 and np.isfinite(near)
