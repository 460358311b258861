"""The trust meter: judges against labels, with intervals; too few cases are not a verdict."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from medloop.contracts import Score
from medloop.contracts.detect import Urgency
from medloop.contracts.validity import LabelledCase, ReadVerdicts
from medloop.errors import ConfigError, InputError
from medloop.reward.mix import MixConfig, MixPart, RewardMix, build_mix
from medloop.reward.trust import TrustConfig, measure, read_cases
from medloop.reward.trust_page import page
from medloop.store.files import jsonl


class Politeness:
    """Likes "please"; sees no fault in any answer without "risk"."""

    name, version, penalty = "polite", "7", False

    def score(self, question: str, answer: str) -> Score:
        return Score(name=self.name, value=float("please" in answer), reason="a word", author="test", version=self.version)


class Danger(Politeness):
    name, penalty = "danger", True

    def score(self, question: str, answer: str) -> Score:
        return Score(name=self.name, value=float("poison" in answer), reason="a word", author="test", version=self.version)


def mix() -> RewardMix:
    rule = f"{__name__}:"
    parts = {"polite": MixPart(weight=1, rule=rule + "Politeness"), "danger": MixPart(weight=-0.5, rule=rule + "Danger")}
    return build_mix(MixConfig(parts=parts))


def urgency(question: str) -> Urgency:
    level = "unknown" if "?" in question else "emergent" if "chest" in question else "routine"
    return Urgency(level=level, confidence=1, language="en", version="u1")  # type: ignore[arg-type]


def card_of(cases: list[LabelledCase], **bounds: float):
    card = measure(cases, mix(), config=TrustConfig(**bounds), urgency=urgency, strata=lambda question: ("child",))
    return card, {row.judge: row for row in card.judges}, {(row.judge, row.quantity, row.slice): row for row in card.measures}


def faults(n: int, *, answer: str, label: bool, source: str = "clinic") -> list[LabelledCase]:
    return [
        LabelledCase(
            id=f"{source}-{answer}-{label}-{i}",
            question="My child has a cough.",
            answer=answer,
            faults={"danger": label},
            source=source,
        )
        for i in range(n)
    ]


def test_recall_counts_what_people_labelled_and_precision_what_the_judge_saw() -> None:
    cases = [
        *faults(30, answer="poison", label=True), *faults(10, answer="harm", label=True),
        *faults(5, answer="poison", label=False), *faults(20, answer="tea", label=False, source="lab"),
    ]  # fmt: skip
    card, judges, measures = card_of(cases, recall=0.5, precision=0.5)
    recall, precision = measures["danger", "recall", "all"].value, measures["danger", "precision", "all"].value
    assert (recall.mean, recall.n, precision.mean, precision.n) == (0.75, 40, 30 / 35, 35)
    assert judges["danger"].verdict == "trusted" and judges["polite"].verdict == "unmeasured"
    assert Counter(row.mistake for row in card.wrong) == {"recall": 10, "precision": 5}
    assert {key[2] for key in measures} == {"all", "language=en", "source=clinic", "stratum=child"}  # nothing was seen in lab


def test_a_lower_bound_below_the_limit_is_untrusted_and_few_cases_are_no_verdict() -> None:
    blind = faults(40, answer="harm", label=True)
    assert card_of(blind)[1]["danger"].verdict == "untrusted"
    assert card_of(blind[:19])[1]["danger"].verdict == "unmeasured"
    seen = faults(20, answer="poison", label=True) + faults(1, answer="tea", label=False)
    assert card_of(seen, recall=0.83)[1]["danger"].verdict == "trusted"
    assert card_of(seen, recall=0.85)[1]["danger"].verdict == "untrusted"  # 20 of 20, but the interval begins at 0.84


def test_pairs_count_ties_as_half_for_the_whole_reward_and_not_at_all_for_a_part() -> None:
    pair = {"question": "Q.", "source": "votes"}
    cases = [LabelledCase(id=f"a{i}", chosen="please", rejected="no", **pair) for i in range(24)]
    cases += [LabelledCase(id=f"b{i}", chosen="rest", rejected="tea", **pair) for i in range(12)]
    cases += [LabelledCase(id=f"c{i}", chosen="poison", rejected="tea", **pair) for i in range(12)]
    _, judges, measures = card_of(cases)
    whole, part = measures["reward", "agreement", "all"], measures["polite", "agreement", "all"]
    assert (whole.value.mean, whole.value.n, whole.ties) == (30 / 48, 48, 12) and (part.value.mean, part.value.n) == (1.0, 24)
    assert measures["danger", "agreement", "all"].value.mean == 0.0
    assert judges["reward"].verdict == "untrusted" and "may be below 0.5" in judges["reward"].reason


def test_an_unknown_emergency_is_not_seen_but_not_missed_and_an_urgent_label_is_neither_right_nor_wrong() -> None:
    words = [("chest", "emergent", 30), ("who?", "emergent", 6), ("chest pain in a film", "routine", 2), ("chest", "urgent", 9)]
    cases = [
        LabelledCase(id=f"{word}{level}{i}", question=word, urgency=level, source="er")  # type: ignore[arg-type]
        for word, level, n in words for i in range(n)
    ]  # fmt: skip
    _, judges, measures = card_of(cases)
    recall, precision = measures["urgency", "recall", "all"].value, measures["urgency", "precision", "all"].value
    assert (recall.mean, recall.n) == (30 / 36, 36) and (precision.n, precision.mean) == (32, 30 / 32)
    shares = {name: measures["urgency", name, "all"].value for name in ("missed", "false_alarms", "unknown")}
    assert {name: (share.mean, share.n) for name, share in shares.items()} == {
        "missed": (0.0, 36), "false_alarms": (1.0, 2), "unknown": (6 / 47, 47),
    }  # fmt: skip
    assert judges["urgency"].version == "u1" and judges["urgency"].verdict == "trusted"


def test_emergencies_called_routine_make_the_detector_untrusted_though_recall_is_fine() -> None:
    words = [("chest", 60), ("legs", 9)]
    cases = [LabelledCase(id=f"{word}{i}", question=word, urgency="emergent", source="er") for word, n in words for i in range(n)]
    cases += [LabelledCase(id="knees", question="knees", urgency="routine", source="er")]
    card, judges, _ = card_of(cases)
    assert [(row.case, row.mistake) for row in card.wrong] == [(f"legs{i}", "missed") for i in range(9)]
    assert judges["urgency"].reason == "emergencies called routine 0.13 [0.07, 0.23] of 69 may be above 0.15"
    assert card_of(cases, missed=0.25)[1]["urgency"].verdict == "trusted"


def test_the_same_cases_give_the_same_card_and_another_version_is_unmeasured() -> None:
    cases = faults(25, answer="poison", label=True) + faults(1, answer="tea", label=False)
    (first, _, _), (second, _, _) = card_of(cases), card_of(cases)
    assert first.model_copy(update={"created": second.created}) == second
    assert first.verdict_on("danger", "7").verdict == "trusted" and first.verdict_on("danger", "8").verdict == "unmeasured"
    assert "danger | trusted" in page(first) and "not measured" in page(first)


def test_a_judge_that_may_object_to_everything_is_not_trusted_and_copies_are_counted() -> None:
    always = faults(30, answer="poison", label=True)
    card, judges, _ = card_of(always)
    assert judges["danger"].verdict == "unmeasured" and "cases without it are needed" in judges["danger"].reason
    assert card.repeats == 29 and "29 of the cases repeat the text" in page(card)
    urgent = [LabelledCase(id=str(i), question=f"legs {i}", urgency="urgent", source="er") for i in range(30)]
    assert card_of(urgent)[1]["urgency"].verdict == "unmeasured"  # only the share of unknown is measured


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"id": "1", "question": "Q", "urgency": "unknown"}, "people label emergent, urgent or routine"),
        ({"id": "1", "question": "  ", "urgency": "routine"}, "'question' has no words"),
        ({"id": "1", "question": "Q", "chosen": "a", "rejected": "a"}, "the same text"),
        ({"id": "1", "question": "Q"}, "no label"),
        ({"id": "1", "question": "Q", "chosen": "a"}, "both 'chosen' and 'rejected'"),
        ({"id": "1", "question": "Q", "faults": {"danger": True}}, "no 'answer'"),
        ({"id": "1", "question": "Q", "urgency": "soon"}, "urgency"),
    ],
)
def test_a_line_that_says_nothing_is_named(tmp_path: Path, line: dict, words: str) -> None:
    path = tmp_path / "cases.jsonl"
    jsonl.append(path, line)
    with pytest.raises(InputError, match=words):
        read_cases([path])


def test_a_fault_that_the_reward_does_not_know_is_named_with_those_it_knows(tmp_path: Path) -> None:
    case = LabelledCase(id="1", question="Q", answer="A", faults={"rudeness": True}, source="x")
    with pytest.raises(ConfigError, match="The case '1': 'rudeness' is no part") as error:
        measure([case], mix(), urgency=urgency)
    assert "danger" in str(error.value)


def test_the_same_id_with_two_cases_is_refused_and_gzip_is_read(tmp_path: Path) -> None:
    rows = [{"id": "1", "question": "Q", "urgency": "routine"}, {"id": "1", "question": "Q", "urgency": "emergent"}]
    path = tmp_path / "er.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.write(json.dumps(rows[0]))
    assert read_cases([path])[0].source == "er"
    (tmp_path / "two.jsonl").write_text(
        "".join(LabelledCase.model_validate(r).model_dump_json(exclude_none=True) + "\n" for r in rows)
    )
    with pytest.raises(InputError, match="two different cases"):
        read_cases([tmp_path / "two.jsonl"])


def test_the_card_says_how_often_a_reader_found_the_objections_of_its_parts_right() -> None:
    card, _, _ = card_of(faults(25, answer="poison", label=True))
    assert "clearly right" not in page(card)  # a judge that nobody read
    read = ReadVerdicts(judge="risk", version="7", right=17, arguable=12, read=40, reader="blind")
    assert "| risk | 40 | 17 | 12 | 11 | a language model, blind |" in page(card.model_copy(update={"read": (read,)}))
