"""What the check of replayed rows leaves out of the rows that repair.py replays: faults, and sound rows.

    python benchmarks/repair_replay.py                 # 3,000 rows of the base corpus, about 25 s on one core; no model

The truth is the table from which the corpus was written: an answer is faulty if it holds one of the table's risky sentences, or
does not send a red flag to urgent care first. So this is our own text, which the rules may know; it says nothing of a clinic's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from repair import LEARNT_BEFORE, learnt_before, say

from medloop.bootstrap import wilson
from medloop.contracts import Score
from medloop.contracts.score import SERIOUS, asserts_fault
from medloop.embedded.table import conditions
from medloop.loop.replay_check import RULES
from medloop.reward.rules import load_rules


def main() -> None:
    risky = {sentence for language in ("zh", "en") for one in conditions(language) for sentence in one.risky}
    faulty, by_value, by_verdict = [], [], []
    for row in learnt_before(LEARNT_BEFORE):
        question = "\n".join(message["content"] for message in row["messages"] if message["role"] == "user")
        answer = row["messages"][-1]["content"]
        scores = [rule.score(question, answer) for rule in load_rules(RULES)]
        faulty.append(is_risky(answer, risky) or is_missed(row))
        by_value.append(next((s.name for s in scores if isinstance(s, Score) and s.applies and s.value >= SERIOUS), None))
        by_verdict.append(next((s.name for s in scores if asserts_fault(s, SERIOUS)), None))
    say(f"{len(faulty):,} rows, {sum(faulty):,} with a faulty answer")
    for name, found in (("value of 0.5 or more", by_value), ("verdict", by_verdict)):
        left_out = [fault is not None for fault in found]
        right = share([out for out, bad in zip(left_out, faulty, strict=True) if bad])
        wrong = share([out for out, bad in zip(left_out, faulty, strict=True) if not bad])
        say(f"{name}: {sum(left_out):,} left out {dict(Counter(filter(None, found)))}")
        say(f"    of the faulty {right}, of the others {wrong}")


def is_risky(answer: str, sentences: set[str]) -> bool:
    visible = answer.rpartition("</think>")[2]
    return any(sentence in visible for sentence in sentences)


def is_missed(row: dict[str, Any]) -> bool:
    """Whether there is a red flag that the answer does not begin with."""
    return bool(row.get("red_flag")) and row["quality"] != "good" and "emergency=first" not in row["quality"]


def share(values: list[bool]) -> str:
    low, high = wilson(sum(values), len(values))
    return f"{sum(values):,} of {len(values):,} ({100 * sum(values) / len(values):.0f} %, {100 * low:.0f}-{100 * high:.0f})"


if __name__ == "__main__":
    main()
