"""The teacher as the writer of rules, criteria and system prompts: its words, screened, or nothing.

    writer = teacher_writer(settings)                 # None where no teacher is configured
    propose_new(store, actor="usr_1", writer=writer)
    draft_new(store, actor="usr_1", writer=writer)

Only corrections whose consent covers the teacher reach it. What it writes must name nobody (the scrubber finds nothing in it) and
must not speak about other instructions; else the template's words are used. It approves nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from medloop.codebook.criteria import DraftCriterion
from medloop.codebook.optimise import PLAIN, prompt_of
from medloop.codebook.reflect import CorrectedAnswer, gives_orders, with_words
from medloop.contracts import EntryText
from medloop.contracts.criterion import MOST_CRITERION
from medloop.errors import BusyError
from medloop.loop.safety_suites import teacher_config
from medloop.privacy.phi.scrub import Scrubber
from medloop.settings import Settings
from medloop.teacher.config import TeacherConfig
from medloop.teacher.injection.fence import FencedValue
from medloop.teacher.judge import TeacherFiles
from medloop.teacher.writing import CriteriaForm, Form, RuleForm, SystemPromptForm, WritingTask, is_configured, write

MOST_CORRECTIONS = 12  # in one request for a system prompt
MOST_CRITERIA = 4


@dataclass(frozen=True)
class TeacherWriter:
    config: TeacherConfig
    key: str
    files: TeacherFiles

    def rule(self, correction: CorrectedAnswer, others: Sequence[str] = ()) -> EntryText | None:
        form = self._write(WritingTask("rule", _shown(correction), RuleForm))
        if form is None or not all(map(names_nobody, (form.rule, *form.triggers))):
            return None
        return with_words(correction, form.rule, form.triggers, others, form.forbids)

    def criteria(self, correction: CorrectedAnswer, known: Sequence[str] = ()) -> list[DraftCriterion]:
        """Criteria beside those that are known; the teacher grades them, too."""
        shown: dict[str, FencedValue] = {**_shown(correction), "known": list(known)}
        form = self._write(WritingTask("criteria", shown, CriteriaForm))
        drafts = []
        for entry in form.criteria[:MOST_CRITERIA] if form else ():
            text = " ".join(entry.criterion.split())
            if (
                entry.points
                and len(text) <= MOST_CRITERION
                and names_nobody(text)
                and not gives_orders(text)
                and text not in known
            ):
                drafts.append(DraftCriterion(text, round(entry.points, 1), None, entry.critical, standard=False))
        return drafts

    def prompt(self, current: str, corrections: Sequence[CorrectedAnswer]) -> EntryText | None:
        rows = [{"question": one.question, "answer": one.original, "corrected": one.golden} for one in corrections]
        shown: dict[str, FencedValue] = {"prompt": current or PLAIN, "corrections": rows[:MOST_CORRECTIONS]}
        form = self._write(WritingTask("system_prompt", shown, SystemPromptForm))
        return prompt_of(form.prompt) if form and names_nobody(form.prompt) else None

    def _write(self, task: WritingTask[Form]) -> Form | None:
        try:
            return write(task, self.config, key=self.key, files=self.files)
        except BusyError:  # a judgement is running; the template does
            return None


def teacher_writer(settings: Settings) -> TeacherWriter | None:
    config, key = teacher_config(settings), settings.teacher.key.get_secret_value()
    return TeacherWriter(config, key, TeacherFiles.of(settings.workspace)) if is_configured(config, key) else None


def names_nobody(text: str) -> bool:
    assessed = Scrubber().assess(text)
    return not assessed.quarantined and not assessed.spans


def _shown(correction: CorrectedAnswer) -> dict[str, str | None]:
    return {
        "question": correction.question, "answer": correction.original, "corrected": correction.golden,
        "reason": correction.reason or None,
    }  # fmt: skip
