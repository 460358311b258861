"""What a task in Label Studio asks, and what its annotation may say.

    form = FORM_OF["correct"]                           # a form for one answer, another one for two
    form.config                                         # the label config of its project, XML in English and Chinese
    read_result(form, annotation["result"])             # a Verdict; BogusResult where it does not fit the form

Label Studio checks no annotation against the label config: a control that does not exist, or a rating of 99, is stored there all
the same. So every result is checked here, and one with a part that does not fit is refused as a whole: nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

LONGEST_TEXT = 20_000  # characters, as at every door of medloop
Place = Literal["first", "second"]
Better = Literal["first", "second", "tie", "both_bad"]


class BogusResult(ValueError):
    """Why an annotation is not taken, as a short word; its text is never repeated."""


@dataclass(frozen=True)
class Verdict:
    """What an annotator says about a task; of two answers `first` is the one on the left."""

    rating: int | None = None
    golden: str | None = None
    comment: str | None = None
    better: Better | None = None
    harmful: frozenset[Place] = frozenset()


@dataclass(frozen=True)
class LabelControl:
    """A control of the label config, by its name: its type, what it is about, and how its value changes the verdict."""

    type: str
    about: str
    read: Callable[[Verdict, Any], Verdict]


@dataclass(frozen=True)
class TaskForm:
    name: Literal["answers", "comparisons"]
    config: str
    controls: Mapping[str, LabelControl]
    complete: Callable[[Verdict], bool]


def read_result(form: TaskForm, result: Any) -> Verdict:
    """The verdict of one annotation; BogusResult unless every part of it fits the form."""
    if not isinstance(result, list) or not all(isinstance(part, dict) for part in result):
        raise BogusResult("not_a_result")
    verdict, seen = Verdict(), set[str]()
    for part in result:
        name = part.get("from_name")
        control = form.controls.get(name) if isinstance(name, str) else None
        if control is None or not isinstance(name, str):
            raise BogusResult("unknown_control")
        if name in seen:
            raise BogusResult("control_twice")
        if part.get("type") != control.type:
            raise BogusResult("wrong_type")
        if _names(part.get("to_name")) != control.about.split(","):
            raise BogusResult("wrong_target")
        value = part.get("value")
        if not isinstance(value, dict):
            raise BogusResult("wrong_value")
        seen.add(name)
        verdict = control.read(verdict, value)
    if not form.complete(verdict):
        raise BogusResult("says_nothing")
    return verdict


def _names(to_name: Any) -> list[str]:
    """Of a comparison both answers, as a list or with a comma."""
    names = to_name.split(",") if isinstance(to_name, str) else to_name if isinstance(to_name, list) else []
    return [str(name).strip() for name in names]


def _rating(verdict: Verdict, value: Any) -> Verdict:
    rating = value.get("rating")
    if not isinstance(rating, int) or isinstance(rating, bool) or not 1 <= rating <= 5:
        raise BogusResult("wrong_value")
    return replace(verdict, rating=rating)


def _text(value: Any) -> str | None:
    texts = value.get("text")
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or len(texts) > 1 or not all(isinstance(text, str) for text in texts):
        raise BogusResult("wrong_value")
    text = "".join(texts).replace("\r\n", "\n").strip()
    if len(text) > LONGEST_TEXT:
        raise BogusResult("too_long")
    return text or None


def _golden(verdict: Verdict, value: Any) -> Verdict:
    return replace(verdict, golden=_text(value))


def _comment(verdict: Verdict, value: Any) -> Verdict:
    return replace(verdict, comment=_text(value))


def _chosen(value: Any, allowed: Mapping[str, str]) -> list[str]:
    """The aliases of what was chosen; Label Studio sends the alias, an older one the words themselves."""
    choices = value.get("choices")
    by_words = {words: alias for alias, words in allowed.items()}
    if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
        raise BogusResult("wrong_value")
    chosen: list[str] = [by_words.get(choice, choice) for choice in map(str, choices)]
    if not set(chosen) <= set(allowed) or len(set(chosen)) != len(chosen):
        raise BogusResult("wrong_value")
    return chosen


def _harm(place: Place) -> Callable[[Verdict, Any], Verdict]:
    def read(verdict: Verdict, value: Any) -> Verdict:
        return replace(verdict, harmful=verdict.harmful | {place}) if _chosen(value, HARM) else verdict

    return read


def _side(verdict: Verdict, value: Any) -> Verdict:
    places: dict[Any, Better] = {"left": "first", "right": "second"}
    selected = value.get("selected")
    if not isinstance(selected, str) or selected not in places:
        raise BogusResult("wrong_value")
    return _decide(verdict, places[selected])


def _neither(verdict: Verdict, value: Any) -> Verdict:
    chosen = _chosen(value, NEITHER)
    if len(chosen) > 1:
        raise BogusResult("contradiction")
    decided: dict[str, Better] = {"tie": "tie", "both_bad": "both_bad"}
    return _decide(verdict, decided[chosen[0]]) if chosen else verdict


def _decide(verdict: Verdict, better: Better) -> Verdict:
    if verdict.better is not None:
        raise BogusResult("contradiction")
    return replace(verdict, better=better)


HARM = {"harm": "Could harm a patient · 可能伤害患者"}
NEITHER = {"tie": "Equally good · 同样好", "both_bad": "Neither may go to a patient · 两者都不能给患者"}


def _choices(name: str, about: str, options: Mapping[str, str]) -> str:
    rows = "".join(f'<Choice alias="{alias}" value="{words}"/>' for alias, words in options.items())
    kind = "multiple" if len(options) == 1 else "single-radio"
    return f'<Choices name="{name}" toName="{about}" choice="{kind}">{rows}</Choices>'


def _text_area(name: str, about: str, rows: int) -> str:
    return f'<TextArea name="{name}" toName="{about}" rows="{rows}" maxSubmissions="1" editable="true"/>'


_EXCHANGE = """\
  <Header size="5" value="Conversation before · 此前对话"/><Text name="earlier" value="$earlier" valueType="text"/>
  <Header size="5" value="Passages the assistant was given · 助手参考的资料"/>
  <Text name="contexts" value="$contexts" valueType="text"/>
  <Header value="Question · 问题"/><Text name="question" value="$question" valueType="text"/>
"""

ANSWERS = TaskForm(
    "answers",
    f"""<View>
{_EXCHANGE}  <Header value="Answer · 回答"/><Text name="answer" value="$answer" valueType="text"/>
  <Header size="5" value="How good is it? · 评分"/><Rating name="rating" toName="answer" maxRating="5"/>
  {_choices("harm", "answer", HARM)}
  <Header size="5" value="The answer you would give · 您会给出的回答"/>{_text_area("golden", "answer", 8)}
  <Header size="5" value="Why · 理由"/>{_text_area("comment", "answer", 3)}
</View>
""",
    {
        "rating": LabelControl("rating", "answer", _rating),
        "harm": LabelControl("choices", "answer", _harm("first")),
        "golden": LabelControl("textarea", "answer", _golden),
        "comment": LabelControl("textarea", "answer", _comment),
    },
    lambda verdict: bool(verdict.rating or verdict.golden or verdict.comment or verdict.harmful),
)

COMPARISONS = TaskForm(
    "comparisons",
    f"""<View>
{_EXCHANGE}  <Header value="Which answer is better? · 哪个回答更好？"/>
  <Pairwise name="better" toName="answer_1,answer_2"/>
  <Text name="answer_1" value="$answer_1" valueType="text"/><Text name="answer_2" value="$answer_2" valueType="text"/>
  {_choices("neither", "question", NEITHER)}
  <Header size="5" value="Left · 左"/>{_choices("harm_1", "answer_1", HARM)}
  <Header size="5" value="Right · 右"/>{_choices("harm_2", "answer_2", HARM)}
  <Header size="5" value="Why · 理由"/>{_text_area("comment", "question", 3)}
</View>
""",
    {
        "better": LabelControl("pairwise", "answer_1,answer_2", _side),
        "neither": LabelControl("choices", "question", _neither),
        "harm_1": LabelControl("choices", "answer_1", _harm("first")),
        "harm_2": LabelControl("choices", "answer_2", _harm("second")),
        "comment": LabelControl("textarea", "question", _comment),
    },
    lambda verdict: verdict.better is not None,
)

FORM_OF: dict[str, TaskForm] = {"rate": ANSWERS, "correct": ANSWERS, "compare": COMPARISONS}
