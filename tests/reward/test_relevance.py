"""rel, faith, conc: null answers earn nothing, no number without meaning, and the same number in any company."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from medloop.contracts import Missing, Sample, Score
from medloop.errors import MissingExtraError, ModelError
from medloop.models import minilm
from medloop.reward.mix import MixConfig, MixPart, build_mix
from medloop.reward.relevance import RelevanceConfig, greedy_f1, load_relevance
from medloop.reward.word_overlap import overlap_with, script, sentence_overlap, sentences
from medloop.settings import Settings
from medloop.testing.models import tiny_tokenizer

QUESTION = "Does regular exercise lower the blood pressure of older adults?"
CONTEXT = (
    "We followed 120 adults above the age of 65 for a year. Half of them walked for thirty minutes on five days a week. "
    "Systolic blood pressure fell by 8 mmHg in those who exercised and by 1 mmHg in the others. Nobody was harmed."
)
GOOD = "Yes: walking on most days made systolic pressure fall by about 8 mmHg in people over 65."
OFF = "The museum opens at nine and the tickets are sold at the gate on the left."
ZH_QUESTION, ZH_CONTEXT = (
    "我有高血压，可以吃党参吗？",
    "党参有降低血压的作用。高血压患者可以适量服用党参，但应定期测量血压，遵医嘱用药。",
)
ZH_GOOD, ZH_OFF = "高血压患者适量服用党参是可以的，同时要定期测量血压。", "博物馆早上九点开门，门票在左边的窗口购买。"
NULLS = ["", " ", ":", "。", "Thought process:", "答：", "<think>Exercise lowers blood pressure.</think>", "<!-- 8 mmHg fell -->"]
HEURISTIC = RelevanceConfig(scorer="heuristic")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(home=tmp_path_factory.mktemp("ws"), threads=1, offline=True)


@pytest.fixture(scope="module")
def minilm_parts(settings: Settings) -> dict[str, Any]:
    return load_relevance(RelevanceConfig(), settings)


@pytest.fixture(scope="module")
def tiny_cross(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, tokenizer = tmp_path_factory.mktemp("cross"), tiny_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        initializer_range=0.5, pad_token_id=tokenizer.pad_token_id, num_labels=1,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def ask(answer: str | None, question: str = QUESTION, context: str | None = CONTEXT, id: str = "1") -> Sample:
    return Sample(id=id, question=question, answer=answer, context=context)


def zh(answer: str) -> Sample:
    return ask(answer, ZH_QUESTION, ZH_CONTEXT)


def score_one(part: Any, sample: Sample) -> Score | Missing:
    (score,) = part.score([sample])
    return score  # type: ignore[no-any-return]


def value(part: Any, sample: Sample) -> float:
    score = score_one(part, sample)
    assert isinstance(score, Score) and score.applies, score
    return score.value


def kinds(settings: Settings) -> list[dict[str, Any]]:
    configs = [RelevanceConfig(), RelevanceConfig(faith="bertscore"), HEURISTIC]
    return [load_relevance(config, settings) for config in configs]


def test_null_answers_earn_nothing_in_any_part_of_any_kind(settings: Settings) -> None:
    for parts in kinds(settings):
        for part in parts.values():
            for sample in [*(ask(null) for null in NULLS), *(zh(null) for null in NULLS)]:
                assert value(part, sample) <= 0.1, (part.version, sample.answer)


def test_the_right_answer_beats_one_about_something_else(settings: Settings) -> None:
    for parts in kinds(settings):
        for name in ("rel", "faith"):
            assert value(parts[name], ask(GOOD)) > value(parts[name], ask(OFF)) + 0.2
            assert value(parts[name], zh(ZH_GOOD)) > value(parts[name], zh(ZH_OFF)) + 0.2


def test_conciseness_is_the_formula_of_the_document(minilm_parts: dict[str, Any]) -> None:
    conc = minilm_parts["conc"]
    assert value(conc, ask("a b c " + "x" * 19, context="y" * 100)) == 0.75  # 1 - 25/100
    assert value(conc, ask("a b c d e f", context="y z")) == 0.0
    thought = value(conc, ask("<think>" + "long " * 50 + "</think>" + GOOD))
    assert thought == value(conc, ask(GOOD)) == pytest.approx(1 - len(GOOD) / len(CONTEXT), abs=1e-6)


def test_without_a_context_there_is_nothing_to_keep_to(minilm_parts: dict[str, Any]) -> None:
    for context in (None, "", " \n"):
        for name in ("faith", "conc"):
            score = score_one(minilm_parts[name], ask(GOOD, context=context))
            assert isinstance(score, Score) and not score.applies
        assert value(minilm_parts["rel"], ask(GOOD, context=context)) > 0.3


def test_no_answer_is_missing(minilm_parts: dict[str, Any]) -> None:
    for part in minilm_parts.values():
        score = score_one(part, Sample(id="1", question=QUESTION, context=CONTEXT, why_missing="too long"))
        assert isinstance(score, Missing) and score.reason == "too long" and score.version == part.version


def test_a_score_does_not_depend_on_its_neighbours_or_their_order(settings: Settings) -> None:
    samples = [
        ask(GOOD),
        zh(ZH_GOOD),
        ask(OFF),
        ask(""),
        ask(None),
        ask(GOOD + " " + CONTEXT),
        ask(GOOD, context=None),
        zh(ZH_OFF),
    ]
    for parts in kinds(settings):
        for part in parts.values():
            whole, alone = part.score(samples), [score_one(part, sample) for sample in samples]
            turned = part.score(samples[::-1])[::-1]
            for a, b, c in zip(whole, alone, turned, strict=True):
                assert type(a) is type(b) is type(c) and a.version == b.version
                if isinstance(a, Score):
                    assert a.value == pytest.approx(b.value, abs=2e-5) and a.value == pytest.approx(c.value, abs=2e-5)


def test_the_question_given_back_is_no_answer(settings: Settings) -> None:
    for parts in kinds(settings):
        assert value(parts["rel"], ask(QUESTION)) == value(parts["rel"], ask(QUESTION * 3)) == 0
        assert value(parts["rel"], zh(ZH_QUESTION)) == 0
        assert value(parts["rel"], ask(GOOD)) > 0.2


def test_an_english_encoder_leaves_chinese_to_the_heuristic_and_says_so(minilm_parts: dict[str, Any]) -> None:
    for name in ("rel", "faith"):
        chinese, english = score_one(minilm_parts[name], zh(ZH_GOOD)), score_one(minilm_parts[name], ask(GOOD))
        assert chinese.author == "reward:heuristic" and "heuristic" in chinese.version
        assert chinese.reason.startswith("Heuristic (embedded:minilm does not read this script)")
        assert english.author == "reward:relevance" and "embedded:minilm@" in english.version
    assert "no cross-encoder configured" in score_one(minilm_parts["rel"], ask(GOOD)).reason


def test_strict_makes_it_missing_instead(settings: Settings) -> None:
    parts = load_relevance(RelevanceConfig(strict=True), settings)
    for name in ("rel", "faith"):
        score = score_one(parts[name], zh(ZH_GOOD))
        assert isinstance(score, Missing) and "does not read this script" in score.reason
        assert value(parts[name], zh("")) == 0 and value(parts[name], ask(GOOD)) > 0.3


def test_an_answer_in_another_language_cannot_escape_its_score(minilm_parts: dict[str, Any]) -> None:
    stray = ask(GOOD, ZH_QUESTION, ZH_CONTEXT)
    assert value(minilm_parts["rel"], stray) == 0 and value(minilm_parts["faith"], stray) == 0
    abroad = score_one(minilm_parts["faith"], ask(ZH_GOOD, ZH_QUESTION, CONTEXT))  # an English paper, a Chinese patient
    assert isinstance(abroad, Missing) and "no words to compare" in abroad.reason


def test_a_question_without_words_is_missing_by_words_and_not_zero(settings: Settings) -> None:
    for question in ("What now?", "怎么办？"):
        score = score_one(load_relevance(HEURISTIC, settings)["rel"], ask(GOOD, question))
        assert isinstance(score, Missing) and "no words to compare" in score.reason


def test_without_the_package_words_are_compared_and_the_version_says_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> Path:
        raise MissingExtraError("embedded:minilm needs a package that is not installed", "Install it")

    monkeypatch.setattr(minilm, "folder", gone)
    parts = load_relevance(RelevanceConfig(), settings)
    assert parts["rel"].version == parts["faith"].version == "1(heuristic-1)"
    assert score_one(parts["rel"], ask(GOOD)).reason.startswith("Heuristic (no encoder): the answer has")
    with pytest.raises(MissingExtraError):
        load_relevance(RelevanceConfig(strict=True), settings)["rel"].score([ask(GOOD)])


def test_a_model_that_is_there_but_damaged_is_an_error_and_no_fallback(settings: Settings, tiny_cross: Path) -> None:
    parts = load_relevance(RelevanceConfig(cross_encoder="embedded:minilm"), settings)  # it has no head
    with pytest.raises(ModelError, match="classifier"):
        parts["rel"].score([ask(GOOD)])


@pytest.mark.parametrize("named", ["encoder", "cross_encoder"])
def test_a_model_that_was_asked_for_by_name_has_no_substitute(settings: Settings, named: str) -> None:
    with pytest.raises(ModelError, match="models/nowhere"):
        _ = load_relevance(RelevanceConfig(**{named: "models/nowhere"}), settings)["rel"].version


def test_a_cross_encoder_judges_relevance_and_knows_what_it_reads(settings: Settings, tiny_cross: Path) -> None:
    config = RelevanceConfig(cross_encoder=str(tiny_cross))
    rel = load_relevance(config, settings)["rel"]
    score = score_one(rel, ask(GOOD))
    assert isinstance(score, Score) and 0 < score.value < 1 and score.reason.startswith("Cross-encoder score: 0.")
    assert f"cross-encoder:{tiny_cross}@" in rel.version
    assert score_one(rel, zh(ZH_GOOD)).author == "reward:heuristic"  # it spells Chinese in bytes
    reads = load_relevance(config.model_copy(update={"reads_chinese": True}), settings)["rel"]
    assert score_one(reads, zh(ZH_GOOD)).author == "reward:relevance"


def test_no_model_is_loaded_before_the_first_score(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from medloop.models import encode

    opened: list[str] = []
    real = encode.load_encoder
    monkeypatch.setattr(encode, "load_encoder", lambda name, *a, **k: opened.append(name) or real(name, *a, **k))
    parts = load_relevance(RelevanceConfig(), settings)
    assert parts["rel"].version.startswith("1(cosine:embedded:minilm@") and not parts["rel"].penalty
    parts["rel"].score([ask("")])
    assert not opened
    parts["rel"].score([ask(GOOD)])
    parts["faith"].score([ask(GOOD)])
    assert opened == ["embedded:minilm"]


def test_faith_takes_each_sentences_best_match_and_no_sentence_twice(minilm_parts: dict[str, Any]) -> None:
    faith = minilm_parts["faith"]
    quoted = "Nobody was harmed. We followed 120 adults above the age of 65 for a year."
    assert value(faith, ask(quoted)) == pytest.approx(1.0, abs=1e-4)
    mixed = value(faith, ask(quoted + " " + OFF))
    assert value(faith, ask(quoted + " " + OFF + " " + OFF)) == pytest.approx(mixed) and mixed < 0.8


def test_greedy_matching_by_hand() -> None:
    answer, context = np.eye(3, dtype=np.float32)[:1], np.eye(3, dtype=np.float32)[:2]
    # The one answer token has its twin in the context: precision 1. Of two context tokens one has: recall 1/2. F1 = 2/3.
    assert greedy_f1(answer, context) == pytest.approx(2 / 3)
    assert greedy_f1(answer, context[1:]) == 0 and greedy_f1(answer[:0], context) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("布洛芬 ibuprofen 400 mg 每天三次，饭后服用", "other"), ("TNF-α and IL-1β rise in sepsis", "latin"), ("12:30", "none"),
     ("Лихорадка два дня", "other"), ("Fièvre à 39 °C", "latin"), ("", "none")],
)  # fmt: skip
def test_the_script_of_a_text(text: str, expected: str) -> None:
    assert script(text) == expected


def test_shared_pieces_by_hand() -> None:
    # "高血", "血压", "党参" are what is asked about; the answer has the first two.
    assert overlap_with("我有高血压，能吃党参吗？", "高血压要紧。") == pytest.approx(2 / 3)
    assert overlap_with("", "高血压") == 0 and sentence_overlap("", "高血压") == 0
    # First sentence: both pairs in the context; second: none of its own.
    assert sentence_overlap("血压党参。门票窗口。", "血压高。党参好。血压党参。") == pytest.approx(0.5)
    assert sentences("One. Two!\n三。One.") == ["One", "Two", "三"]


def test_the_parts_go_into_the_mix(minilm_parts: dict[str, Any]) -> None:
    config = MixConfig(parts={name: MixPart(weight=1.0, given=True) for name in minilm_parts}, bounds=(-3, 3))
    samples: Sequence[Sample] = [ask(GOOD), ask(OFF), ask("")]
    good, off, null = (reward.value or 0.0 for reward in build_mix(config, minilm_parts).score(samples))
    assert good > off > null == 0
    assert json.loads(build_mix(config, minilm_parts).score(samples)[0].canonical_json())["parts"][0]["name"] == "rel"
