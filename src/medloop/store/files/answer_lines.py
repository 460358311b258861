"""The one reader of conversations and answers in JSON lines, for prediction, training, scoring, judging and evaluation.

    for line in read_conversations(path): line.conversation                      # what to ask a model, or to learn from
    for sample in read_samples(path, Questions([records])): sample.answer        # what to score

A line is a record of the data engine (`conversation`), `{"messages": [...]}`, or a question (`question`, `prompt`) with or
without an answer (`answer`, `text`), as `medloop predict` writes it. `id`, `record_id` or `prompt_id` names it. An answer without
a question takes the one with its id from the files in `Questions`. Files may be gzipped. An error names file and line, never the
text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from medloop.contracts import Conversation, Message, Sample
from medloop.errors import InputError
from medloop.knobs import problem_list
from medloop.store.files import jsonl

IDS = ("id", "record_id", "prompt_id")
QUESTIONS = ("question", "prompt", "user_query", "query")
ANSWERS = ("answer", "text", "response", "agent_response", "output")

NO_QUESTION = "no question"
LOOKS_LIKE = 'Lines look like {"id": ..., "question": ..., "answer": ...}'
ONLY_IDS = f"{LOOKS_LIKE}; where a file has only ids, name the file with the questions: --questions FILE"


class RawMessage(NamedTuple):
    role: str
    content: str


class ConversationLine(NamedTuple):
    """A conversation with its line number, its ids (the first one names it), passages for the answer, and its risk strata."""

    number: int
    ids: tuple[str, ...]
    conversation: Conversation
    passages: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnswerLine:
    """An answer and the prompt before it; no answer where the model gave none, no prompt where the question is unknown."""

    number: int
    ids: tuple[str, ...]
    prompt: tuple[RawMessage, ...]
    answer: str | None
    context: str | None = None
    group: str | None = None
    strata: tuple[str, ...] = ()
    truncated: bool = False

    @property
    def question(self) -> str:
        """All messages of the user: a red flag in the first message still counts in the third."""
        return "\n".join(message.content for message in self.prompt if message.role == "user")

    def sample(self) -> Sample:
        return Sample(
            id=self.ids[0] if self.ids else str(self.number), question=self.question, answer=self.answer, group=self.group,
            context=self.context, why_missing="the model gave no answer",
        )  # fmt: skip


class Questions:
    """Conversations by id, read from files when the first one is looked up."""

    def __init__(self, paths: Iterable[Path] = ()) -> None:
        self._paths = tuple(paths)

    @cached_property
    def _by_id(self) -> dict[str, ConversationLine]:
        return {name: line for path in self._paths for line in read_conversations(path) for name in line.ids}

    def find(self, ids: Sequence[str]) -> ConversationLine | None:
        return next((self._by_id[name] for name in ids if name in self._by_id), None) if self._paths else None


def read_conversations(path: Path) -> Iterator[ConversationLine]:
    """Every line of a file, streaming; the first bad line raises an InputError that names it."""
    for number, row in _rows(path):
        try:
            conversation = _conversation(row)
        except ValidationError as error:
            raise InputError.at(path, number, problem_list(error, "messages"), "Repair or remove that line") from None
        except ValueError as error:
            raise InputError.at(path, number, str(error), "Repair or remove that line") from None
        yield ConversationLine(number, _ids(row), conversation, passages_of(row), _strata(row))


def is_answered(conversation: Conversation) -> bool:
    """Whether it ends with an answer to something."""
    return conversation.answer is not None and len(conversation.messages) > 1


def read_samples(path: Path, questions: Questions | None = None, *, unique: bool = True) -> Iterator[Sample]:
    """Every answer of a file as a sample, streaming; see `read_answers`."""
    return (line.sample() for line in read_answers(path, questions, unique=unique))


def read_answers(
    path: Path,
    questions: Questions | None = None,
    *,
    unique: bool = True,
    need_question: bool = True,
    need_answer: bool = True,
) -> Iterator[AnswerLine]:
    """Every answer of a file, streaming. With `unique`, a duplicate id is an error."""
    first_lines: dict[str, int] = {}
    for number, row in _rows(path):
        try:
            line = _answer_line(number, row, questions or Questions(), need_answer)
            if need_question and not line.prompt:
                raise ValueError(NO_QUESTION)
        except ValueError as error:
            hint = ONLY_IDS if str(error) == NO_QUESTION else LOOKS_LIKE
            raise InputError.at(path, number, str(error), hint) from None
        if unique and line.ids:
            refuse_duplicate(first_lines, line.ids[0], path, number, "; put answers to one question into one group")
        yield line


def refuse_duplicate(first_lines: dict[str, int], name: str, path: Path, number: int, more: str = "") -> None:
    """Remember the line on which an id was first seen; InputError when it is seen again."""
    if (first := first_lines.setdefault(name, number)) != number:
        raise InputError.at(path, number, f"duplicate id (first seen on line {first})", f"Use unique ids{more}")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    for number, row in jsonl.numbered(path):
        yield number, row
    if not number:
        raise InputError(f"{path} is empty", "Give a file with one JSON object per line")


def _ids(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[key]) for key in IDS if row.get(key) not in (None, ""))


def _strata(row: dict[str, Any]) -> tuple[str, ...]:
    strata = row.get("strata")
    return tuple(map(str, strata)) if isinstance(strata, list) else ()


def passages_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What the answer may rely on (`context`, `contexts`): a text is one passage, a list holds several."""
    context = row.get("context", row.get("contexts"))
    passages = context if isinstance(context, list) else [context]
    return tuple(text for text in passages if isinstance(text, str) and text.strip())


def _question(row: dict[str, Any]) -> Any:
    return next((row[key] for key in QUESTIONS if row.get(key) is not None), None)


def _conversation(row: dict[str, Any]) -> Conversation:
    if "conversation" in row:
        return Conversation.model_validate(row["conversation"])
    question = row["messages"] if "messages" in row else _question(row)
    if question is None:
        raise ValueError(f"the line has none of conversation, messages, {', '.join(QUESTIONS)}")
    if isinstance(question, list) or "messages" in row:
        return Conversation.model_validate({"messages": question})
    return Conversation(messages=(Message(role="user", content=question),))


def _answer_line(number: int, row: dict[str, Any], questions: Questions, need_answer: bool) -> AnswerLine:
    prompt, answer, end = _prompt(row), _answer(row), row.get("finish_reason")
    if prompt and prompt[-1].role == "assistant":
        answer = prompt[-1].content if answer is None else answer
        prompt = prompt[:-1]
    passages, strata, ids = passages_of(row), _strata(row), _ids(row)
    if not prompt and (known := questions.find(ids)):
        prompt = tuple(RawMessage(message.role, message.content) for message in known.conversation.prompt)
        passages, strata = passages or known.passages, known.strata
    if answer is None and end != "error" and need_answer:
        raise ValueError("no answer")
    group = str(row["group"]) if row.get("group") else None
    context = "\n".join(passages) or None
    return AnswerLine(number, ids, prompt, None if end == "error" else answer, context, group, strata, end == "length")


def _prompt(row: dict[str, Any]) -> tuple[RawMessage, ...]:
    """Messages in any roles, or the question as one message; none where the user says nothing."""
    messages, question = row.get("messages"), _question(row)
    if messages is None and isinstance(row.get("conversation"), dict):
        messages = row["conversation"].get("messages")
    if messages is None and isinstance(question, list):
        messages = question
    if messages is not None and not (isinstance(messages, list) and all(map(_is_message, messages))):
        raise ValueError("messages must be a list of objects with role and content")
    prompt = tuple(RawMessage(message["role"], message["content"]) for message in messages or ())
    if any(message.role == "user" for message in prompt):
        return prompt
    return (RawMessage("user", question),) if isinstance(question, str) else ()


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and isinstance(message.get("content"), str) and isinstance(message.get("role"), str)


def _answer(row: dict[str, Any]) -> str | None:
    answers = [row[key] for key in ANSWERS if row.get(key) is not None]
    text = next((answer for answer in answers if isinstance(answer, str)), None)
    if text is None and (row.get("answer") is not None or row.get("text") is not None):
        raise ValueError("the answer must be text")
    return text
