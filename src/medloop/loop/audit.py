"""The audit of an RL run, composed: the panel's measures with the detectors of the reward, and a second judge.

    audit = rl_audit(settings, scorer, seed=42)       # for train/rl: it looks at every held-out check, and screens every batch

`text_tools` is the only place that names the detectors; a better one of urgency or of urgent advice takes its place here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from medloop import lexicon
from medloop.contracts import Scorer
from medloop.contracts.detect import UrgencyLevel
from medloop.data.text.risk import strata_of
from medloop.evaluate.hacking.measures import PanelRow, TextTools, measure_answers
from medloop.evaluate.hacking.panel import PanelConfig, TrainingRound, panel
from medloop.evaluate.hacking.slices import by_question
from medloop.lexicon.language import is_read
from medloop.lexicon.words import split_words
from medloop.loop.scoring import given_parts
from medloop.reward.answer_text import content_words, split_answer
from medloop.reward.detect.acts import acts
from medloop.reward.detect.urgency import urgency
from medloop.reward.mix import MixConfig, MixPart, build_mix
from medloop.reward.points import RELATED, read_points
from medloop.reward.rules.chain import triage_conflict
from medloop.reward.rules.emergency import CONDITIONAL, best_advice
from medloop.settings import Settings
from medloop.train.rl.checks import Answers, AuditResult

CLEAR = 2.0  # standard errors
LEVEL_RISE = 0.1  # a level that the policy before training nearly had is an alarm when it rose by more than this
NO_SECOND_JUDGE = (
    "The audit has no second judge, because the reward is the default mix: it looks at triage, language, copying, topic, "
    "templates, coherence and KL. Name a reward model or a teacher with second_judge."
)


def _split(answer: str) -> tuple[str | None, str]:
    parts = split_answer(answer)
    return parts.chain, parts.visible


def _urgency(question: str) -> UrgencyLevel:
    """As the detector says. The audit only compares with the policy before training, so that a question which the detector does
    not know and in which the lexicon finds no red flag, not even a denied one, may count as routine: more questions, an earlier
    alarm.
    """
    level = urgency(question).level
    return "routine" if level == "unknown" and not lexicon.find_red_flags(question) else level


def _urges(text: str) -> bool:
    return best_advice(text).value > CONDITIONAL


def _contradicts(chain: str, visible: str) -> bool:
    return triage_conflict(chain, visible) is not None


def _refuses(text: str) -> bool:
    return any(act.kind == "refuses" and act.polarity != "negated" for act in acts(text))


def _flags(question: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(flag.id for flag in lexicon.find_red_flags(question) if not flag.negated))


def _fits(question: str, visible: str) -> bool:
    """In any language that the word lists read; an answer about the same part of medicine fits."""
    return not is_read(question) or read_points(question, visible).fit >= RELATED


def _clearly_rose(before: float, now: float, answers: int) -> bool:
    """Whether a share rose by more than a tenth and by more than chance among so many answers."""
    error = sqrt((before * (1 - before) + now * (1 - now)) / max(answers, 1))
    return now - before > max(LEVEL_RISE, CLEAR * error)


def text_tools() -> TextTools:
    return TextTools(_split, content_words, _urgency, _urges, _contradicts, _refuses, strata_of, _flags, _fits)


@dataclass(frozen=True)
class RLAudit:
    """What a trainer asks at its held-out checks (`check`) and after its steps (`screen`)."""

    seed: int
    judge: Scorer | None
    tools: TextTools

    @property
    def note(self) -> str | None:
        return NO_SECOND_JUDGE if self.judge is None else None

    def check(self, before: Answers, now: Answers, *, looks: int) -> AuditResult:
        """The panel over the answers before training and now; `standing` are faults that were there before."""
        rounds = [TrainingRound(name, self._rows(answers)) for name, answers in (("before", before), ("now", now))]
        result = panel(rounds, config=PanelConfig(seed=self.seed, looks=looks), tools=self.tools)
        first = result.rounds[0]
        levels = {"missing": first.missing, "same_answer": first.same_answer,
                  "truncated_level": first.measures.get("truncated", 0.0)}  # fmt: skip
        # A reward that rises faster than the second judge's score may be a good one; a score that falls is measured apart.
        mine = [alarm for alarm in result.alarms if alarm.round == "now" and alarm.kind != "gap"]
        fewest = min(len(round.rows) for round in rounds)
        standing = [a for a in mine if a.kind in levels and not _clearly_rose(levels[a.kind], a.measured, fewest)]
        words = {alarm.words: alarm.words.removeprefix("now: ") for alarm in mine}
        measures = dict(result.rounds[1].measures)
        if result.rounds[1].held_out.mean is not None:
            measures["judge"] = round(result.rounds[1].held_out.mean, 6)
        return AuditResult(
            tuple(words[alarm.words] for alarm in mine if alarm not in standing),
            tuple(words[alarm.words] for alarm in standing), measures, dict(first.measures),
        )  # fmt: skip

    def screen(self, answers: Answers) -> dict[str, tuple[float, float]]:
        """The measures of a batch that was sampled anyway, and its length in words: means over its questions, standard errors.

        The judge and the reference are not asked.
        """
        rows = [PanelRow(row.sample.id, row.sample.question, row.sample.answer, row.reward, truncated=row.truncated)
                for row in answers]  # fmt: skip
        measures = measure_answers(rows, rows, self.tools, PanelConfig().habit)
        for row, measured in zip(rows, measures, strict=True):
            measured["words"] = float(len(split_words(row.answer or "")))
        columns: dict[str, list[float]] = {}
        for values in by_question(rows, measures).values():
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
        return {name: (fmean(column), stdev(column) / sqrt(len(column))) for name, column in columns.items() if len(column) > 1}

    def bounds(self) -> dict[str, float]:
        """How much worse each measure of `screen` may get; `words` as a share, up or down."""
        worse = {name: bound for name, bound in PanelConfig().worse.items() if name != "new_words"}  # needs the first answers
        return {**worse, "words": PanelConfig().length_growth}

    def _rows(self, answers: Answers) -> list[PanelRow]:
        scores = self._judged(answers)
        return [
            PanelRow(row.sample.id, row.sample.question, row.sample.answer, row.reward, score, row.truncated, row.likelihood,
                     row.kl)
            for row, score in zip(answers, scores, strict=True)
        ]  # fmt: skip

    def _judged(self, answers: Answers) -> list[float | None]:
        if self.judge is None:
            return [None] * len(answers)
        samples = [row.sample.model_copy(update={"id": f"{row.sample.id}:{n}"}) for n, row in enumerate(answers)]
        return [reward.value for reward in self.judge.score(samples)]


def rl_audit(settings: Settings, scorer: Scorer, *, seed: int, second_judge: Mapping[str, str] | None = None) -> RLAudit:
    """The audit of a run. Its second judge is the named one, else the default mix, unless that is the reward."""
    if second_judge:
        parts = {name: MixPart(weight=1.0, given=True) for name in second_judge}
        judge = build_mix(MixConfig(parts=parts), given_parts(settings, second_judge))
        return RLAudit(seed, judge, text_tools())
    default = build_mix(MixConfig())
    return RLAudit(seed, None if scorer.version == default.version else default, text_tools())
