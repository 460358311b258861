"""How far a judge can be trusted: what it says against what people say, with intervals."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from medloop.contracts.base import Contract, Hash, Text, Timestamp, Unit, utc_now
from medloop.contracts.detect import UrgencyLevel
from medloop.contracts.evaluation import Interval

Quantity = Literal["recall", "precision", "agreement", "missed", "false_alarms", "unknown"]
UPPER: tuple[Quantity, ...] = ("missed", "false_alarms", "unknown")  # the less, the better; only the urgency detector has them
TrustVerdict = Literal["trusted", "untrusted", "unmeasured"]
MIX, URGENCY, HARM = "reward", "urgency", "harm"  # judges that are not a part of the reward
ALL = "all"  # the slice with every case


# Why labels were left out of a card, in English and Chinese; `not_judged: risk` names the part after the colon.
LEFT_OUT: dict[str, tuple[str, str]] = {
    "no_consent": ("records without consent to evaluation", "未同意用于评估的记录"),
    "no_teacher_consent": ("records without consent to evaluation by a teacher", "未同意交由教师模型评估的记录"),
    "check": ("verdicts on check items, which measure their raters", "用于衡量评审者的校验题裁定"),
    "superseded": ("records that a later one replaces", "已被后续记录取代的记录"),
    "erased": ("erased records", "已删除的记录"),
    "quarantined": ("records in quarantine", "隔离中的记录"),
    "refused": ("records that the privacy review refused", "隐私审核未通过的记录"),
    "phi": ("records with identifiers, now in quarantine", "含身份信息、现已隔离的记录"),
    "empty": ("records without a question and an answer", "没有问题和回答的记录"),
    "tie": ("pairs with as many votes on both sides", "两边票数相同的成对回答"),
    "no_choice": ("comparisons without a better answer", "未分出优劣的比较"),
    "no_weight": (
        "pairs that no clinician or annotator whose vote counts supports",
        "没有任何计权的临床医生或标注员支持的成对回答",
    ),
    "outweighed": ("corrections that raters of at least their authors' weight disliked", "被权重不低于作者的评审者否定的更正"),
    "flagged": ("pairs whose better answer somebody flagged as harmful", "较好的回答被标记为可能有害的成对回答"),
    "contradiction": ("pairs that a stronger source contradicts", "与更可靠来源相矛盾的成对回答"),
    "same_answer": ("comparisons of an answer with itself", "两个回答相同的比较"),
    "too_many": ("pairs beyond the eighth of one question", "同一问题第八对之后的成对回答"),
    "unscrubbable": ("labels whose text cannot be scrubbed", "文本无法去标识的标注"),
    "safety_unclear": ("answers whose safety raters disagree about, or call middling", "安全性评价有分歧或居中的回答"),
    "no_fault_named": (
        "critical flags that name no fault: they count only as harm",
        "未指明具体问题的危险标记（仅计为伤害）",
    ),
    "faults_unclear": ("faults that raters disagree about, or call middling", "评审意见有分歧或居中的问题"),
    "not_judged": ("labels of {part}, which this reward does not look for", "“{part}”的标注（该奖励不作此项判断）"),
}


# A judge in words, in English and Chinese: a part of the reward, or an entry of a teacher's verdict (`teacher.risk`).
JUDGE_NAMES: dict[str, tuple[str, str]] = {
    MIX: ("whole reward", "总奖励"), HARM: ("harm", "伤害"), URGENCY: ("urgency detector", "紧急程度检测"),
    "chain": ("chain of reasoning", "推理链"), "emergency": ("emergency advice", "急症处置"),
    "risk": ("risky advice", "危险建议"),
    "helpfulness": ("helpfulness", "有用性"), "false_reassurance": ("false reassurance", "错误安慰"),
    "overtriage": ("over-triage", "过度分诊"), "undertriage": ("under-triage", "分诊不足"),
    "safety_net": ("safety net", "何时就医的提醒"), "off_topic": ("off topic", "答非所问"), "length": ("length", "长度"),
    "repetition": ("repetition", "重复"), "format": ("format", "格式"), "teacher": ("teacher", "教师模型"),
    "model": ("reward model", "奖励模型"), "rel": ("relevance", "相关性"), "faith": ("faithfulness", "忠实性"),
    "conc": ("conciseness", "简洁性"), "teacher.urgency": ("teacher: right urgency", "教师模型：紧急程度判断"),
    "teacher.risk": ("teacher: risky advice", "教师模型：危险建议"),
    "teacher.false_reassurance": ("teacher: false reassurance", "教师模型：错误安慰"),
    "teacher.reasoning": ("teacher: sound reasoning", "教师模型：推理可靠性"),
    "teacher.relevance": ("teacher: answers the question", "教师模型：切题"),
}  # fmt: skip


def judge_name(judge: str, language: Literal["en", "zh"] = "en") -> str:
    """A judge for people; one that somebody added keeps its own name."""
    return JUDGE_NAMES[judge][language == "zh"] if judge in JUDGE_NAMES else judge.replace("_", " ")


# What is measured, in words; the last three are of texts that nobody labelled (reward/judge_drift.py).
QUANTITY_NAMES: dict[str, tuple[str, str]] = {
    "recall": ("recall", "召回率"), "precision": ("precision", "精确率"), "agreement": ("agreement", "一致率"),
    "missed": ("emergencies called routine", "急症判为常规的比例"), "false_alarms": ("false alarms", "误报率"),
    "unknown": ("without an answer", "未作判断的比例"), "firing": ("share with an objection", "报出问题的比例"),
    "mean": ("mean score", "平均分"), "missing": ("share without a score", "无评分的比例"),
}  # fmt: skip


def quantity_name(quantity: str, language: Literal["en", "zh"] = "en") -> str:
    return QUANTITY_NAMES[quantity][language == "zh"]


def keeps_bound(quantity: Quantity, value: Interval, bound: float) -> bool:
    """Whether the whole interval is on the right side of the bound."""
    return (value.high if value.high is not None else 1.0) <= bound if quantity in UPPER else (value.low or 0.0) >= bound


def left_out_lines(left_out: Mapping[str, int], language: Literal["en", "zh"] = "en") -> list[str]:
    """What was left out, for people."""
    lines = []
    for reason, count in left_out.items():
        code, _, part = reason.partition(": ")
        lines.append(f"{count:,} {LEFT_OUT[code][language == 'zh'].format(part=judge_name(part, language))}")
    return lines


class LabelledCase(Contract):
    """What people say about a question, an answer, or two answers.

    `urgency` labels the question. `faults` names parts of the reward: true, if the answer has the fault that this part looks for.
    `harm` says whether the answer could harm a patient, where nobody said in which way. `chosen` and `rejected` are two answers
    of which people preferred the first.
    """

    id: Text
    question: Text
    answer: Text | None = None
    urgency: UrgencyLevel | None = None
    faults: dict[str, bool] = Field(default_factory=dict)
    harm: bool | None = None
    chosen: Text | None = None
    rejected: Text | None = None
    source: Text | None = None
    specialty: Text | None = None
    labelled_by: Text | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "LabelledCase":
        if (self.chosen is None) != (self.rejected is None):
            raise ValueError("a pair needs both 'chosen' and 'rejected'")
        if (self.faults or self.harm is not None) and self.answer is None:
            raise ValueError("'faults' and 'harm' label an answer, but there is no 'answer'")
        if self.urgency == "unknown":
            raise ValueError("'unknown' is what the detector may say; people label emergent, urgent or routine")
        if blank := [name for name in ("question", "answer", "chosen", "rejected") if not (getattr(self, name) or "x").strip()]:
            raise ValueError(f"'{blank[0]}' has no words")
        if self.chosen is not None and self.chosen == self.rejected:
            raise ValueError("'chosen' and 'rejected' are the same text, so nobody preferred one")
        if self.urgency is None and not self.faults and self.harm is None and self.chosen is None:
            raise ValueError("the line has no label: give 'urgency', 'faults', 'harm', or 'chosen' and 'rejected'")
        return self


class Validity(Contract):
    """One quantity of one judge on one slice of the cases ("all", "language=zh", "stratum=child", "specialty=cardiology")."""

    judge: Text
    quantity: Quantity
    slice: Text
    value: Interval
    ties: int = Field(0, ge=0)


class WrongCase(Contract):
    """A case that a judge got wrong. Its text is not kept, and no case from use is named.

    Not seen (`recall`), seen without reason (`precision`), the other answer preferred (`agreement`), an emergency called routine
    (`missed`) or the reverse (`false_alarms`).
    """

    judge: Text
    case: Text
    source: str
    mistake: Quantity


class JudgeTrust(Contract):
    """The verdict on one judge: `untrusted` below a bound, `unmeasured` without enough cases, which does not mean trusted.

    `since`: this card's cases do not measure the judge, so the verdict is that of an earlier card, of this time.
    """

    judge: Text
    version: Text
    verdict: TrustVerdict
    reason: Text
    since: Timestamp | None = None


class JudgeProfile(Contract):
    """What one judge said about `n` texts, whatever people say: the share it fires on, its mean, the share without a score."""

    judge: Text
    version: Text
    n: int = Field(ge=0)
    firing: Unit
    mean: float | None = None
    missing: Unit


class ReadVerdicts(Contract):
    """What a reader made of the verdicts of one part on real text, where it asserts a fault; `version` is that of the part."""

    judge: Text
    version: Text
    right: int = Field(ge=0)
    arguable: int = Field(ge=0)
    read: int = Field(ge=0)
    reader: Literal["blind", "known", "author", "held"]
    """`blind`: a language model that knew no rules. `known`: the same, but its grades were known when it was decided what is a
    verdict. `author`: who mended the rules, on texts that they were mended on. `held`: the same, on texts kept apart."""


class JudgeSource(Contract):
    """Which judge was measured, as the options of the command name it; all empty: the default mix.

    Files in the workspace are relative to it.
    """

    config: str | None = None
    given: dict[str, str] = Field(default_factory=dict)
    dw: str | None = None
    teacher: str | None = None
    reward_model: str | None = None


class DriftRecord(Contract):
    """The last look for drift of one reward: when, at how many exchanges, and why it could not be checked, if so.

    `baseline` is of the exchanges up to `baseline_until`, where the card itself has too few of them.
    """

    checked: Timestamp = Field(default_factory=utc_now)
    exchanges: int = Field(0, ge=0)
    problem: Literal["", "changed", "unreadable"] = ""
    baseline: tuple[JudgeProfile, ...] = ()
    baseline_until: Timestamp | None = None


class ValidityCard(Contract):
    """Every judge of one reward against one set of cases. Another version of the reward needs another card.

    `bundled`: all cases are those in the package, which say that the meter works and nothing about patients. `sources` counts
    the cases by source, `left_out` the labels that could not be used, by reason. `traffic` is what the judges said about the
    newest exchanges at that time. `wrong` names up to 20 cases for each judge and kind of mistake.
    `read` is what readers made of verdicts on real text that comes with this package, whatever the cases are.
    `repeats` counts cases with the text and the label of another one: they count, but say nothing new.
    """

    reward_version: Text
    kind: Text = "mix"
    judge_source: JudgeSource = JudgeSource()
    cases: Hash
    n_cases: int = Field(ge=0)
    bundled: bool = False
    sources: dict[str, int] = Field(default_factory=dict)
    left_out: dict[str, int] = Field(default_factory=dict)
    judges: tuple[JudgeTrust, ...]
    measures: tuple[Validity, ...]
    wrong: tuple[WrongCase, ...] = ()
    repeats: int = Field(0, ge=0)
    bounds: dict[str, float]
    min_cases: int = Field(20, ge=1)
    traffic: tuple[JudgeProfile, ...] = ()
    read: tuple[ReadVerdicts, ...] = ()
    created: Timestamp = Field(default_factory=utc_now)

    def verdict_on(self, judge: str, version: str) -> JudgeTrust:
        """The verdict on this version of a judge; one that the card does not know is unmeasured."""
        known = next((row for row in self.judges if row.judge == judge), None)
        if known is None or known.version != version:
            reason = "it has never been measured" if known is None else f"only version {known.version} has been measured"
            return JudgeTrust(judge=judge, version=version, verdict="unmeasured", reason=reason)
        return known
