"""Memory of an episode: bounded, and no danger is lost with a message that is dropped."""

from collections.abc import Sequence

import pytest

from medloop.contracts.chat import Conversation, Message
from medloop.reward.detect.urgency import urgency
from medloop.serve.agent import memory as module
from medloop.serve.agent.memory import EpisodeMemory, Remembered, dangerous, extract, shorten


def is_emergent(text: str) -> bool:
    return urgency(text).level == "emergent"


def turns(*texts: str) -> list[Message]:
    return [Message(role="assistant" if index % 2 else "user", content=text) for index, text in enumerate(texts)]


DANGERS = (
    "My father's mouth droops and he cannot lift his arm since this morning.",
    "I have crushing chest pain that goes into my left arm and I am sweating.",
    "我爸爸突然口角歪斜，右边手脚没有力气，说话不清楚。",
    "She took forty paracetamol tablets an hour ago.",
)
CHATTER = "By the way the weather was lovely on our trip and the hotel had a nice garden. " * 40


@pytest.mark.parametrize("danger", DANGERS)
def test_guards_find_the_danger_of_dropped_messages(danger: str) -> None:
    assert is_emergent(danger)
    memory = EpisodeMemory(is_emergent)
    messages: list[Message] = turns(f"{danger} {CHATTER}", "Please call an ambulance.")
    for number in range(6):
        memory.remember("ep", None, messages)
        messages = [*memory.recall("ep"), *turns(f"{number} {CHATTER}", "Fine.")]
    memory.remember("ep", None, messages)
    recalled = memory.recall("ep")
    assert sum(len(message.content) for message in recalled) < module.RECENT_CHARACTERS + 6_000
    assert any(is_emergent(message.content) for message in recalled if message.role == "user")
    Conversation(messages=(*recalled, Message(role="user", content="And now?")))  # user and assistant alternate


def test_a_danger_in_two_sentences_is_kept_with_both() -> None:
    danger = lambda text: "pills" in text and "forty" in text  # noqa: E731
    assert dangerous("I took pills. There were forty of them. Nice day.", danger) == ["I took pills. There were forty of them."]
    assert dangerous("forty! No. What? pills", danger) == ["forty! No. What? pills"]


def test_an_extract_keeps_what_matters_and_stays_short() -> None:
    text = CHATTER + "I am pregnant and take warfarin 5 mg. " + CHATTER
    summary = extract(text)
    assert "warfarin 5 mg" in summary and len(summary) <= module.SUMMARY_CHARACTERS and "hotel" not in summary


@pytest.mark.parametrize("reply", ["The user is pregnant.", "", "x" * 9_000, None])
def test_the_model_may_summarise_and_may_fail(reply: str | None) -> None:
    def summarise(text: str) -> str:
        if reply is None:
            raise TimeoutError
        return reply

    messages = turns("I am pregnant and take warfarin. " + CHATTER, "Noted.", CHATTER, "Yes.", CHATTER, "Yes.")
    memory = shorten(Remembered(()), messages, is_emergent, summarise)
    assert memory.summary == reply if reply == "The user is pregnant." else "warfarin" in memory.summary


def test_memory_ends_with_time_with_number_and_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    memory = EpisodeMemory(lambda text: False, clock=lambda: now[0])
    monkeypatch.setattr(module, "EPISODES", 2)

    def remembered() -> Sequence[str]:
        return [name for name in "abc" if memory.recall(name)]

    for name in "abc":
        memory.remember(name, None, turns("Hello", "Hi"))
    assert remembered() == ["b", "c"]
    memory.forget("b")
    assert remembered() == ["c"]
    now[0] = module.LIFETIME_S + 1
    assert remembered() == []
    memory.remember("a", None, turns("Hello", "Hi"))
    memory.forget()
    assert remembered() == []


def test_what_was_recalled_is_not_remembered_twice() -> None:
    memory = EpisodeMemory(lambda text: False)
    memory.remember("ep", None, turns("One", "First"))
    memory.remember("ep", None, [Message(role="system", content="S"), *memory.recall("ep"), *turns("Two", "Second")])
    assert [message.content for message in memory.recall("ep")] == ["One", "First", "Two", "Second"]
