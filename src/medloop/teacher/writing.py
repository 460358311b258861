"""Short texts that the teacher writes from a correction: a rule, criteria, a system prompt. People decide about each of them.

    form = write(WritingTask("rule", {"question": …, "answer": …, "corrected": …}, RuleForm), config, key=key, files=files)
    form.rule, form.triggers                   # None where the service failed, or where a text must not leave

Client, budget, log, scrubber and fence are those of the judge: texts go out without identifiers and without what could address
the model, as JSON between marks that no text can know. What comes back is checked by its form; whether it names a person or gives
orders is checked by the caller, in the words that it becomes. Each call opens and closes its own connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from medloop.contracts.rule import ForbiddenAct
from medloop.privacy.phi.scrub import Scrubber
from medloop.teacher import prompt_templates, usage
from medloop.teacher.cache import Appender
from medloop.teacher.client import Teacher
from medloop.teacher.config import TeacherConfig
from medloop.teacher.failures import Failure
from medloop.teacher.injection import fence
from medloop.teacher.injection.fence import FencedValue
from medloop.teacher.judge import TeacherFiles, exclusive
from medloop.teacher.verdict import VerdictHead, read_form

MOST_TOKENS = 800  # of a reply


class RuleForm(VerdictHead):
    rule: Annotated[str, Field(min_length=1, max_length=2000)]
    triggers: Annotated[tuple[str, ...], Field(max_length=20, strict=False)] = ()
    forbids: Annotated[tuple[ForbiddenAct, ...], Field(max_length=20, strict=False)] = ()  # an unknown act refuses the reply


class WrittenCriterion(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    criterion: Annotated[str, Field(min_length=1, max_length=2000)]
    points: Annotated[float, Field(ge=-10, le=10)]
    critical: bool = False


class CriteriaForm(VerdictHead):
    criteria: Annotated[list[WrittenCriterion], Field(max_length=20)]


class SystemPromptForm(VerdictHead):
    prompt: Annotated[str, Field(min_length=1, max_length=8000)]


Form = TypeVar("Form", bound=VerdictHead)


@dataclass(frozen=True)
class WritingTask(Generic[Form]):
    """One text to write: the template, what it is shown, and the form of the reply."""

    template: str
    shown: Mapping[str, FencedValue]
    form: type[Form]


def is_configured(config: TeacherConfig, key: str) -> bool:
    return bool(key) or not config.needs_key


def write(task: WritingTask[Form], config: TeacherConfig, *, key: str, files: TeacherFiles) -> Form | None:
    """The form as the teacher filled it in; None where there is none, whatever the reason (the log has it)."""
    shown = {name: _outgoing(value) for name, value in task.shown.items()}
    if any(value is None and task.shown[name] is not None for name, value in shown.items()):
        return None  # a person should see it first
    with exclusive(files.judgements):
        return asyncio.run(_write(task, shown, config, key, files))


async def _write(
    task: WritingTask[Form], shown: Mapping[str, FencedValue], config: TeacherConfig, key: str, files: TeacherFiles
) -> Form | None:
    log, template, token = Appender(usage.log_path(files.logs)), prompt_templates.load(task.template), fence.new_fence()
    messages = template.render(fence=token, data=fence.fenced_json(token, **shown))
    about = {"template": template.name, "template_version": template.version}
    try:
        async with Teacher(config, key, log=log.put, spent_today=usage.spent_today(files.logs)) as teacher:
            read = partial(read_form, kind=task.form, fence=token)
            return (await teacher.complete(messages, read, about, max_tokens=MOST_TOKENS)).verdict
    except Failure:
        return None
    finally:
        await log.flush()


def _outgoing(value: FencedValue) -> FencedValue:
    """Without identifiers and without what could address the model; None where the scrubber doubts its own work."""
    if isinstance(value, str):
        result = Scrubber().assess(fence.inspect(value).text)
        return None if result.quarantined else result.cleaned
    if isinstance(value, list):
        rows = [
            {name: _outgoing(text) for name, text in row.items()} if isinstance(row, dict) else _outgoing(row) for row in value
        ]
        doubtful = any(None in row.values() if isinstance(row, dict) else row is None for row in rows)
        return None if doubtful else rows  # type: ignore[return-value]
    return None
