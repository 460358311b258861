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


def make_emergencies(count: int, languages: tuple[str, ...] = ("zh", "en")) -> list[Record]:
    """Questions with a red flag, in turns in each language, all with good advice in English."""
    questions = {"en": "Case {}: I have crushing chest pain.", "zh": "病例{}：突然嘴角歪斜，说话不清。"}
    turns = [languages[n % len(languages)] for n in range(count)]
    return [
        make_record(n, questions[language].format(n), URGENT, language=language, strata=("emergency",))
        for n, language in enumerate(turns)
    ]
