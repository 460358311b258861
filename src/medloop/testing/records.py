"""Records for tests, with contents known in advance."""

from medloop.contracts import Conversation, Message, Origin, Record

URGENT = "Call an ambulance now. Sit down and do not drive."
CALM = "Rest and drink tea. It will pass."


def make_record(
    number: int, question: str, answer: str | None = None, *, language: str = "en", strata: tuple[str, ...] = ("routine",)
) -> Record:
    """One exchange; without an answer it is a bare question."""
    messages = [Message(role="user", content=question), *([Message(role="assistant", content=answer)] if answer else [])]
    conversation = Conversation(messages=tuple(messages))
    return Record.model_validate(
        {
            "record_id": conversation.content_id(),
            "conversation": conversation,
            "language": language,
            "strata": strata,
            "origin": Origin(source="made", line=number + 1),
        }
    )


def make_emergencies(count: int) -> list[Record]:
    """Questions with a red flag, half of them in Chinese, each with good advice."""
    questions = [
        f"Case {n}: I have crushing chest pain." if n % 2 else f"病例{n}：突然嘴角歪斜，说话不清。" for n in range(count)
    ]
    return [make_record(n, q, URGENT, language="en" if n % 2 else "zh", strata=("emergency",)) for n, q in enumerate(questions)]
