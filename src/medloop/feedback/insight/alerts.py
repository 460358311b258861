"""Alerts: a code with its numbers, and the sentence for it in English and Chinese.

    alert = made("share", "share_of_rater", "usr_1", share=0.395, most=0.2)
    sentence(alert)                    # "gave 39.5% of the preferences (more than 20%)"
    sentence(alert, "zh")              # "提交了 39.5% 的比较（超过 20%）"

The sentence of an alert with `about` follows that person's name. `words` in the JSON is the English sentence.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from medloop.contracts.base import Contract, Text
from medloop.contracts.validity import JUDGE_NAMES, judge_name, quantity_name
from medloop.settings import Workspace
from medloop.store.files import jsonl

Language = Literal["en", "zh"]
Value = int | float | str

# code -> (English, Chinese); the slots are the values, formatted by `_FORMATS`.
SENTENCES: dict[str, tuple[str, str]] = {
    "incident_open": ("{n} critical incident is open", "有 {n} 个安全事件未关闭"),
    "incidents_open": ("{n} critical incidents are open", "有 {n} 个安全事件未关闭"),
    "share_of_rater": ("gave {share} of the preferences (more than {most})", "提交了 {share} 的比较（超过 {most}）"),
    "share_of_sender": (
        "{share} of the preferences came from one sender, under several raters' names",
        "{share} 的比较由同一账号以多名评审者的名义提交",
    ),
    "low_kappa": (
        "agrees little with the other raters on {what} (kappa {kappa}, n = {n}); consider quarantining their records",
        "在{what}上与其他评审者的一致性很低（kappa {kappa}，共 {n} 次），请考虑隔离其记录",
    ),
    "drift_up": ("has become more lenient than the other raters", "与同期其他评审者相比，评分变得更宽松"),
    "drift_down": ("has become stricter than the other raters", "与同期其他评审者相比，评分变得更严格"),
    "same_in_a_row": ("gave the same rating {n} times in a row", "连续 {n} 次给出相同评分"),
    "too_fast": ("gave {share} of the ratings within 5 seconds of the previous one", "{share} 的评分与上一次间隔不足 5 秒"),
    "low_alpha": (
        "raters agree little on {what}: alpha {alpha}, at most {high}",
        "评审者在{what}上的一致性很低：α 为 {alpha}，至多 {high}",
    ),
    "first_preferred": (
        "the answer shown first is preferred in {fraction} of the comparisons",
        "先显示的回答在 {fraction} 的比较中被选中",
    ),
    "judge_fell": (
        "the judge “{judge}” agrees less with people than on the card before: {quantity} {before} → {after} (n = {n}); "
        "reward {reward}",
        "评判项“{judge}”与人工判断的一致程度低于上一次测量：{quantity}由 {before} 变为 {after}（共 {n} 例），奖励版本 {reward}",
    ),
    "judge_changed": (
        "the judge “{judge}” was changed and agrees less with people than its version on the card before: {quantity} {before} → "
        "{after} (n = {n}); nothing has drifted, another version was measured; reward {reward}",
        "评判项“{judge}”已更换版本，与人工判断的一致程度低于上一次测量的版本：{quantity}由 {before} 变为 {after}（共 {n} 例）；"
        "这不是漂移，而是测量了另一版本；奖励版本 {reward}",
    ),
    "judge_shift": (
        "the judge “{judge}” treats recent exchanges differently from earlier ones: {quantity} {before} → {after} "
        "(n = {n}); reward {reward}",
        "评判项“{judge}”对近期对话的评判与此前不同：{quantity}由 {before} 变为 {after}（共 {n} 条），奖励版本 {reward}",
    ),
}
# What people judge, in Chinese; English uses the name itself. An axis without an entry keeps its name.
CHINESE_NAMES = {name: zh for name, (_, zh) in JUDGE_NAMES.items()} | {
    "stars": "星级", "thumbs": "认可与否", "choice": "比较", "choices": "比较", "axis": "星级", "correctness": "正确性",
    "safety": "安全性", "completeness": "完整性", "clarity": "清晰度", "empathy": "同理心",
}  # fmt: skip


class Alert(Contract):
    """Something a person should check; `about` is a rater or a sender, `values` are the numbers in the sentence."""

    kind: Text
    code: Text
    about: str | None = None
    values: dict[str, int | float | str] = Field(default_factory=dict)
    words: Text


def _standing_file(workspace: Workspace) -> Path:
    return workspace.reports / "trust" / "alerts.jsonl"


def standing_alerts(workspace: Workspace) -> list[Alert]:
    """Alerts about the judges, which stand until a later check finds that it is over (loop/judge_drift.py)."""
    path = _standing_file(workspace)
    return list(jsonl.read(path, Alert)) if path.is_file() else []


def write_standing(workspace: Workspace, alerts: Sequence[Alert]) -> None:
    jsonl.write(_standing_file(workspace), alerts)


def make_alert(kind: str, code: str, about: str | None = None, **values: Value) -> Alert:
    return Alert(kind=kind, code=code, about=about, values=values, words=_sentence(code, values, "en"))


def sentence(alert: Alert, language: Language = "en") -> str:
    return _sentence(alert.code, alert.values, language)


def _sentence(code: str, values: dict[str, Value], language: Language) -> str:
    pattern = SENTENCES[code][language == "zh"]
    return pattern.format(**{name: _FORMATS[name](value, language) for name, value in values.items()})


def _percent(digits: int) -> Callable[[Value, Language], str]:
    return lambda value, language: f"{float(value):.{digits}%}"


def _decimal(value: Value, language: Language) -> str:
    return f"{round(float(value), 2) + 0.0:.2f}"  # no -0.00


def _count(value: Value, language: Language) -> str:
    return f"{int(value):,}"


def _name(value: Value, language: Language) -> str:
    """`stars`, `choices`, or one axis: `axis safety`, `choice safety`."""
    if language == "en":
        return str(value)
    return "、".join(CHINESE_NAMES.get(part, part) for part in str(value).split(" ", 1)[::-1])


def _judge(value: Value, language: Language) -> str:
    return judge_name(str(value), language)


def _quantity(value: Value, language: Language) -> str:
    return quantity_name(str(value), language)


def _plain(value: Value, language: Language) -> str:
    return str(value)


_FORMATS: dict[str, Callable[[Value, Language], str]] = {
    "n": _count, "share": _percent(1), "most": _percent(0), "fraction": _percent(0), "kappa": _decimal, "alpha": _decimal,
    "high": _decimal, "what": _name, "judge": _judge, "quantity": _quantity, "before": _decimal, "after": _decimal,
    "reward": _plain,
}  # fmt: skip
