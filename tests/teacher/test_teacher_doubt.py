"""What the scrubber doubts does not leave: it is missing, with the reason, and not sent."""

from pathlib import Path
from typing import Any

import pytest
from teacher_desk import GOOD

from medloop.privacy.phi.scrub import QUARANTINE, assess
from medloop.teacher.judge import judge_all
from medloop.teacher.judge_items import JudgeItem
from medloop.testing.teacher_server import TeacherServer

DOUBTFUL = "Мне больно, меня зовут как моего деда."
PLAIN = "My head hurts, what now?"


def test_the_text_of_this_test_is_doubtful_but_can_be_scrubbed() -> None:
    assert assess(DOUBTFUL).doubt >= QUARANTINE and assess(DOUBTFUL).cleaned and assess(PLAIN).doubt < QUARANTINE


@pytest.mark.parametrize("texts", [(DOUBTFUL, None), (PLAIN, DOUBTFUL)], ids=["question", "context"])
def test_doubtful_text_is_not_sent_and_is_missing_with_its_reason(desk: Any, texts: tuple[str, str | None]) -> None:
    question, context = texts
    with TeacherServer() as server:
        items = [JudgeItem("doubtful", question, GOOD, context), JudgeItem("plain", PLAIN, f"{GOOD} {DOUBTFUL}")]
        run = judge_all(items, desk.config(server), key="k", files=desk.files)
        sent = str(server.seen)
    assert server.requests == 1 and "зовут" not in sent and run.results[1].judgement  # there the fence cuts it out first
    assert run.results[0].missing == "not sent: words in a script that the scrubber does not know"
    assert run.missing.total() == 1 and not any("зовут" in path.read_text() for path in Path(desk.folder).rglob("*.jsonl"))


def test_digits_that_only_the_fence_makes_plain_are_scrubbed_too(desk: Any) -> None:
    with TeacherServer() as server:
        items = [JudgeItem("p", PLAIN, f"{GOOD} Call ①③⑧⓪⓪①③⑧⓪⓪⓪ or １３８００１３８０００ now.")]
        judge_all(items, desk.config(server), key="k", files=desk.files)
        assert "13800138000" not in str(server.seen)
