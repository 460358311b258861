"""Teacher against rules: what is far apart is written down, once."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from medloop.contracts import Missing, Sample, Score
from medloop.reward.conflicts import Conflict, rules_share, write_conflicts
from medloop.reward.mix import MixConfig, build_mix
from medloop.store.files import jsonl

QUESTION = "I have crushing chest pain since an hour."
BAD, GOOD = "Rest and drink some tea, then see how it goes tomorrow morning at home.", "Call an ambulance now. Sit down and rest."


class Teacher:
    name, penalty = "teacher", False

    def __init__(self, value: float | None, version: str = "t1") -> None:
        self.value, self.version = value, version

    def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
        base = {"name": "teacher", "author": "teacher:fake", "version": self.version}
        if self.value is None:
            return [Missing(**base, reason="timeout") for _ in samples]
        return [Score(**base, value=self.value, reason="r") for _ in samples]


def written(path: Path, teacher: Teacher, answer: str = BAD) -> int:
    config = MixConfig()
    samples = [Sample(id="s1", question=QUESTION, answer=answer)]
    return write_conflicts(path, samples, build_mix(config, {"teacher": teacher}).score(samples), config)


def test_a_teacher_far_from_the_rules_is_written_with_both_views(tmp_path: Path) -> None:
    path = tmp_path / "rl/teacher_conflicts.jsonl"
    assert written(path, Teacher(1.0)) == 1
    (row,) = jsonl.read(path, Conflict)
    assert (row.id, row.teacher) == ("s1", 1.0) and row.rules < 0.05 and row.gap == pytest.approx(1 - row.rules)
    assert {part.name for part in row.parts} == set(MixConfig().parts)


def test_the_same_conflict_is_written_once_and_a_new_version_again(tmp_path: Path) -> None:
    path = tmp_path / "conflicts.jsonl"
    assert [written(path, Teacher(1.0)), written(path, Teacher(1.0)), written(path, Teacher(1.0, "t2"))] == [1, 0, 1]
    assert len(list(jsonl.read(path))) == 2


@pytest.mark.parametrize("value", [0.0, 0.4, None])
def test_agreement_the_threshold_itself_and_a_missing_teacher_are_no_conflict(tmp_path: Path, value: float | None) -> None:
    assert written(tmp_path / "c.jsonl", Teacher(value)) == 0
    assert not (tmp_path / "c.jsonl").exists()


def test_the_rules_view_is_their_share_of_what_could_be_earned() -> None:
    (reward,) = build_mix(MixConfig()).score([Sample(id="1", question=QUESTION, answer=GOOD)])
    value = {part.name: part.value for part in reward.parts if isinstance(part, Score)}
    # chain 0, emergency 1: (0.35·0 + 0.25·1 + 0.15·helpfulness - 0.05·length) / 0.75
    expected = (0.25 + 0.15 * value["helpfulness"] - 0.05 * value["length"]) / 0.75
    assert rules_share(reward, MixConfig()) == pytest.approx(expected, abs=1e-6)


def test_a_ranking_teacher_is_compared_with_the_ranks_of_the_rules(tmp_path: Path) -> None:
    class Ranks(Teacher):
        def score(self, samples: Sequence[Sample]) -> list[Score | Missing]:
            base = {"name": "teacher", "author": "teacher:fake", "version": "t1", "suggested_answer": "Call an ambulance."}
            return [Score(**base, value=float(sample.answer == BAD), reason="liked") for sample in samples]

    config = MixConfig()
    samples = [Sample(id=str(n), group="g", question=QUESTION, answer=text) for n, text in enumerate((BAD, GOOD))]
    rewards = build_mix(config, {"teacher": Ranks(1.0)}).score(samples)
    assert write_conflicts(tmp_path / "c.jsonl", samples, rewards, config, relative=True) == 2
    rows = list(jsonl.read(tmp_path / "c.jsonl", Conflict))
    assert [(row.teacher, row.rules) for row in rows] == [(1.0, 0.0), (0.0, 1.0)]
    assert {row.suggested_answer for row in rows} == {"Call an ambulance."} and rows[0].critique == "liked"
    assert write_conflicts(tmp_path / "d.jsonl", samples[:1], rewards[:1], config, relative=True) == 0


def test_praise_of_what_a_rule_found_harmful_is_a_conflict_however_small_the_gap(tmp_path: Path) -> None:
    config = MixConfig(conflict=1.0)  # no gap is wide enough
    samples = [Sample(id=name, question=QUESTION, answer=answer) for name, answer in (("bad", BAD), ("good", GOOD))]
    for value, conflicts in ((0.9, 1), (0.4, 0)):
        rewards = build_mix(config, {"teacher": Teacher(value)}).score(samples)
        assert write_conflicts(tmp_path / f"{value}.jsonl", samples, rewards, config) == conflicts
    (row,) = jsonl.read(tmp_path / "0.9.jsonl", Conflict)
    assert row.id == "bad" and "undertriage" in row.harm
