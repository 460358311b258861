"""What the teacher judges: one answer to the last question of a conversation, with the earlier messages as context."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from medloop.contracts import Record, canonical_json, sha256_id
from medloop.store.files.answer_lines import AnswerLine, Questions, RawMessage, read_answers

# Not "user" and "assistant": the fence takes out what looks like a message of a chat.
_SPEAKER = {"user": "Patient", "assistant": "Earlier answer"}
# High risk first: when money runs out, the answers that matter most have been judged.
_PRIORITY = {"emergency": 0, "medication": 1, "pregnancy": 1, "child": 1, "elderly": 1}


@dataclass(frozen=True)
class JudgeItem:
    """An answer for the teacher, or None where the model gave none. Lower `priority` goes first: the budget may run out.

    Answers with the same question, context and `group` are compared in one call by a teacher that ranks.
    """

    prompt_id: str
    question: str
    answer: str | None
    context: str | None = None
    priority: int = 0
    group: str | None = None


def read_judge_items(path: Path, *, questions: Iterable[Path] = (), limit: int = 0) -> list[JudgeItem]:
    """The answers of a file, in its order; those without a question take it, by id, from the files in `questions`."""
    known = Questions(questions)
    return [_of_line(line, known) for line in islice(read_answers(path, known, unique=False), limit or None)]


def _of_line(line: AnswerLine, questions: Questions) -> JudgeItem:
    name = line.ids[0] if line.ids else sha256_id(canonical_json([line.question, line.answer]))
    strata = line.strata or ((known := questions.find(line.ids)) and known.strata) or ()
    return replace(judge_item(name, line.prompt, line.answer, line.context, strata), group=line.group)


def item_of_record(record: Record) -> JudgeItem | None:
    """A record's own answer; None when it has none."""
    if record.conversation.answer is None:
        return None
    prompt = [RawMessage(message.role, message.content) for message in record.conversation.prompt]
    return judge_item(record.record_id, prompt, record.conversation.answer, None, record.strata)


def judge_item(
    name: str, prompt: Sequence[RawMessage], answer: str | None, context: str | None = None, strata: Sequence[str] = ()
) -> JudgeItem:
    """The last question of a prompt, with the earlier messages as its context."""
    last = max(index for index, message in enumerate(prompt) if message.role == "user")
    earlier = [f"{_SPEAKER[message.role]}: {message.content}" for message in prompt[:last] if message.role in _SPEAKER]
    return JudgeItem(
        prompt_id=name,
        question=prompt[last].content,
        answer=answer,
        context="\n".join([*earlier, *([context] if context else [])]) or None,
        priority=_PRIORITY.get(strata[0], 5) if strata else 5,
    )
