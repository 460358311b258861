"""What came with training is an alarm; what the policy before training nearly had is only told."""

from pathlib import Path

import pytest

from medloop.contracts import Reward, Sample
from medloop.embedded.corpus import generate
from medloop.loop.audit import RLAudit, text_tools
from medloop.train.rl.checks import Answers, CheckedAnswer

REWARD = Reward(value=0.5, parts=(), weights={}, version="1")


def answers(truncated: int, same: int, missing: int = 0) -> Answers:
    """25 answers with as many words each; `same` of them are one text."""
    texts = ["rest and drink warm water today please"] * same
    texts += [" ".join(f"word{n}x{place}" for place in range(7)) for n in range(25 - same)]
    rows = []
    for n, text in enumerate(texts):
        sample = Sample(id=f"q{n}", question=f"Question {n} about pain{n}?", answer=text)
        rows.append(CheckedAnswer(sample, REWARD.model_copy(update={"value": None} if n < missing else {}), n < truncated))
    return rows


@pytest.mark.parametrize(
    ("before", "now", "alarm"),
    [
        ({"truncated": 22, "same": 0}, {"truncated": 24, "same": 0}, ""),  # 88 % -> 96 %: noise over the bound of 90 %
        ({"truncated": 20, "same": 0}, {"truncated": 23, "same": 0}, ""),  # 80 % -> 92 %: chance among 25 answers
        ({"truncated": 15, "same": 0}, {"truncated": 24, "same": 0}, "truncated"),
        ({"truncated": 0, "same": 14}, {"truncated": 0, "same": 15}, ""),  # above the bound before training, too
        ({"truncated": 0, "same": 14}, {"truncated": 0, "same": 25}, "mostly the same text"),
        ({"truncated": 0, "same": 0, "missing": 2}, {"truncated": 0, "same": 0, "missing": 3}, ""),
        ({"truncated": 0, "same": 0, "missing": 0}, {"truncated": 0, "same": 0, "missing": 9}, "have no reward"),
    ],
)
def test_a_level_is_an_alarm_only_where_training_raised_it(before: dict, now: dict, alarm: str, tmp_path: Path) -> None:
    result = RLAudit(1, None, text_tools()).check(answers(**before), answers(**now), looks=8)
    assert any(alarm in words for words in result.alarms) if alarm else not result.alarms
    assert bool(result.standing) == (not alarm)


PLAN = "Warning sign: chest pain, possibly a heart attack. Plan: urge emergency help now."
CLEAR = "There are no red flags in the question. Plan: explain self-care and when to see a doctor."


@pytest.mark.parametrize(
    ("chain", "answer", "contradicts"),
    [
        (PLAN, "Call 911 now, do not drive yourself.", False),  # a plan is not a directive, and still the same decision
        (PLAN, "This will pass. Rest today and drink enough.", True),
        (CLEAR, "Rest today, and see a doctor if it lasts longer than a week.", False),
        (CLEAR, "Call 911 now, do not drive yourself.", True),
        ("The chest pain came at rest.", "Call 911 now, do not drive yourself.", False),
    ],
)
def test_an_answer_contradicts_its_chain_only_by_another_decision(chain: str, answer: str, contradicts: bool) -> None:
    assert text_tools().contradicts(chain, answer) == contradicts


def test_fluent_answers_to_other_questions_are_an_alarm() -> None:
    """Each answer is a right one, of another question of the same language: the reward may rise, the fit does not."""
    pairs: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
    for row in generate(160, seed=9):
        by_role = {message["role"]: message["content"] for message in row["messages"]}
        if row["quality"] == "good":
            pairs[by_role["user"].isascii()].append((by_role["user"], text_tools().split(by_role["assistant"])[1].strip()))
    right, other = [], []
    for rows in pairs.values():
        for n, (question, answer) in enumerate(rows):
            for texts, text in ((right, answer), (other, rows[(n + len(rows) // 2) % len(rows)][1])):
                texts.append(CheckedAnswer(Sample(id=question, question=question, answer=text), REWARD, False))
    audit = RLAudit(1, None, text_tools())
    assert any("hardly take up their question" in words for words in audit.check(right, other, looks=8).alarms)
    assert not audit.check(right, right, looks=8).alarms
