"""Tools of the assistant: typed functions that read tables and compute. None of them writes, sends or opens anything.

    tools = clinical_tools(urgency=urgency)
    tools["dose_by_weight"].schema                                     # JSON schema of the arguments, for any model or client
    call(tools, "dose_by_weight", {"drug": "paracetamol", "weight_kg": 12})  -> ToolCall(result={...}, error=None)

Which tools a question needs is read from the user's own words (`wanted`), never from a document or a model's text: nothing that
is retrieved can make the assistant call one. Every call is a record for the trace, also one that failed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from medloop import lexicon
from medloop.contracts.base import Contract, Text
from medloop.contracts.detect import Urgency
from medloop.lexicon.load import load_lexicon, read_list
from medloop.lexicon.numbers import find_ages
from medloop.patterns import lazy_pattern

NOTE = {
    "en": "From a table; a clinician must confirm it for this patient.",
    "zh": "数据来自固定表格，须由临床人员针对该患者确认。",
}
MOST_CALLS = 6
SURELY_OLD_ENOUGH_KG = 15  # below it, a dose with a lowest age needs the age
_WEIGHT = lazy_pattern(r"(?<![\d.,])(\d{1,3}(?:[.,]\d{1,3})?)\s*(kg|kgs|kilos?|kilograms?|公斤|千克|斤|lbs?|pounds?)(?![a-z])")
_TO_KG = {"斤": 0.5, "lb": 0.4536, "lbs": 0.4536, "pound": 0.4536, "pounds": 0.4536}


class ToolCall(Contract):
    """One call for the trace: what was asked, what came back or why nothing did."""

    tool: Text
    arguments: dict[str, Any] = Field(default_factory=dict)
    result: dict[str, Any] | None = None
    error: str | None = None
    milliseconds: float = Field(0.0, ge=0)


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DoseArguments(_Arguments):
    drug: str = Field(min_length=2, max_length=80, description="Name of the drug in English or Chinese, generic or brand.")
    weight_kg: float = Field(ge=1, le=300, description="Body weight in kilograms.")
    age_months: float | None = Field(None, ge=0, le=1440, description="Age in months, where it is known.")


class InteractionArguments(_Arguments):
    drugs: tuple[str, ...] = Field(min_length=2, max_length=12, description="Names of two or more drugs.")


class TriageArguments(_Arguments):
    text: str = Field(min_length=1, max_length=20_000, description="What the patient wrote.")


@dataclass(frozen=True)
class Tool:
    """A function over checked arguments; `schema` is what a model or a client is shown."""

    name: str
    description: str
    arguments: type[BaseModel]
    run: Callable[[Any], dict[str, Any]]

    @property
    def schema(self) -> dict[str, Any]:
        """In OpenAI's form of a function."""
        parameters = self.arguments.model_json_schema()
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


def clinical_tools(*, urgency: Callable[[str], Urgency]) -> dict[str, Tool]:
    """The built-in tools; the detector of urgency belongs to another stage and is handed in."""

    def triage(arguments: TriageArguments) -> dict[str, Any]:
        found = urgency(arguments.text)
        return {"level": found.level, "confidence": found.confidence, "evidence": sorted({e.id for e in found.evidence})[:20]}

    tools = (
        Tool("dose_by_weight", "One dose and the most of a day of a drug by body weight.", DoseArguments, dose_by_weight),
        Tool("drug_interactions", "Pairs of these drugs that should not be taken together.", InteractionArguments, interactions),
        Tool("triage", "How soon a patient needs care: emergent, urgent, routine or unknown.", TriageArguments, triage),
    )
    return {tool.name: tool for tool in tools}


def call(tools: Mapping[str, Tool], name: str, arguments: Mapping[str, Any]) -> ToolCall:
    """Run a tool with checked arguments. It never raises: an unknown tool, wrong arguments and a bug are records, too."""
    started = time.perf_counter()

    def ended(result: dict[str, Any] | None = None, error: str | None = None) -> ToolCall:
        spent = round((time.perf_counter() - started) * 1000, 3)
        return ToolCall(tool=name, arguments=dict(arguments), result=result, error=error, milliseconds=spent)

    if name not in tools:
        return ended(error="unknown tool")
    try:
        return ended(tools[name].run(tools[name].arguments.model_validate(arguments)))
    except ValidationError as error:
        return ended(error=f"wrong arguments: {', '.join('.'.join(map(str, e['loc'])) for e in error.errors())}"[:200])
    except Exception as error:  # an answer does not fail with a tool
        return ended(error=type(error).__name__)


def dose_by_weight(arguments: DoseArguments) -> dict[str, Any]:
    """Doses from doses.yaml, never above the most of one dose or of a day."""
    drug = _drug_id(arguments.drug)
    rows = [row for row in _doses() if row["drug"] == drug] if drug else []
    if not rows:
        return {"known": False, "reason": "the table has no dose by weight for this drug"}
    answers = []
    for row in rows:
        if arguments.age_months is None and row["min_months"] and arguments.weight_kg < SURELY_OLD_ENOUGH_KG:
            answers.append(
                {"indication": row["indication"], "refused": f"the age must be known: not below {row['min_months']} months"}
            )
            continue
        if arguments.age_months is not None and arguments.age_months < row["min_months"]:
            answers.append({"indication": row["indication"], "refused": f"not below {row['min_months']} months of age"})
            continue
        low, high = (round(min(arguments.weight_kg * per_kg, row["max_single"]), 3) for per_kg in row["per_kg"])
        daily = round(min(arguments.weight_kg * row["max_daily_per_kg"], row["max_daily"]), 3)
        answers.append(
            {
                "indication": row["indication"], "route": row["route"], "unit": row["unit"], "one_dose": [low, high],
                "most_in_a_day": daily, "times_a_day": row["per_day"], "hours_between": row["hours_between"],
                "source": row["source"],
            }
        )  # fmt: skip
    return {"known": True, "drug": drug, "weight_kg": arguments.weight_kg, "doses": answers, "note": NOTE}


def interactions(arguments: InteractionArguments) -> dict[str, Any]:
    """Pairs from the lexicon's table of drugs; a drug that it does not know is named, not passed over."""
    table = load_lexicon().drugs
    known = {name: _drug_id(name) for name in arguments.drugs}
    ids = sorted({drug for drug in known.values() if drug is not None and drug in table})
    pairs = [
        [first, second]
        for index, first in enumerate(ids)
        for second in ids[index + 1 :]
        if f"drug:{second}" in table[first].avoid or f"drug:{first}" in table[second].avoid
    ]
    unknown = sorted(name for name, drug in known.items() if drug not in table)
    return {"avoid_together": pairs, "checked": ids, "not_in_the_table": unknown, "note": NOTE}


def wanted(question: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls that a question's own words ask for: triage always, a dose for a drug and a weight, two drugs together."""
    drugs = list(dict.fromkeys(mention.id for mention in lexicon.find_drugs(question) if not _is_family(mention.id)))
    calls: list[tuple[str, dict[str, Any]]] = [("triage", {"text": question[:20_000]})] if question.strip() else []
    if (weight := weight_kg(question)) is not None:
        ages = [age.years * 12 for age in find_ages(lexicon.folded(question)) if age.years <= 120]
        age = {"age_months": round(min(ages), 1)} if ages else {}  # of several people, the youngest decides
        calls += [("dose_by_weight", {"drug": drug, "weight_kg": weight, **age}) for drug in drugs[:2]]
    if len(drugs) > 1:
        calls.append(("drug_interactions", {"drugs": tuple(drugs[:12])}))
    return calls[:MOST_CALLS]


def call_wanted(tools: Mapping[str, Tool], question: str) -> tuple[ToolCall, ...]:
    return tuple(call(tools, name, arguments) for name, arguments in wanted(question))


def weight_kg(text: str) -> float | None:
    """The one body weight that a text states; None where there is none or more than one."""
    found = {(float(match[1].replace(",", ".")), match[2]) for match in _WEIGHT.finditer(lexicon.folded(text))}
    weights = {round(number * _TO_KG.get(unit, 1.0), 1) for number, unit in found}
    return weights.pop() if len(weights) == 1 and 1 <= min(weights) <= 300 else None


def tool_lines(calls: Sequence[ToolCall], language: str) -> list[str]:
    """What a prompt is told of the calls; triage speaks through the guards and not here."""
    lines = []
    for done in calls:
        result = done.result or {}
        if done.tool == "dose_by_weight" and result.get("known"):
            for dose in result["doses"]:
                lines.append(_dose_line(result, dose, language))
        if done.tool == "drug_interactions":
            lines += [
                " + ".join(pair) + (": 不宜合用" if language == "zh" else ": not together") for pair in result["avoid_together"]
            ]
    return [*lines, NOTE[language]] if lines else []


def _dose_line(result: Mapping[str, Any], dose: Mapping[str, Any], language: str) -> str:
    what = f"{result['drug']}, {result['weight_kg']:g} kg, {dose['indication'][language]}"
    if "refused" in dose:
        return f"{what}: {dose['refused']}"
    low, high = dose["one_dose"]
    amount = f"{low:g}" if low == high else f"{low:g}-{high:g}"
    words = ("每次", "每日最多", "来源") if language == "zh" else ("one dose", "most in a day", "source")
    return (
        f"{what}: {words[0]} {amount} {dose['unit']} {dose['route'][language]}, "
        f"{words[1]} {dose['most_in_a_day']:g} {dose['unit']} ({words[2]}: {dose['source']})"
    )


def _drug_id(name: str) -> str | None:
    own = [row["drug"] for row in _doses() if name.strip().lower() in row.get("names", ())]
    if own:
        return str(own[0])
    mentions = [mention.id for mention in lexicon.find_drugs(name) if not _is_family(mention.id)]
    return mentions[0] if len(set(mentions)) == 1 else (name if name in load_lexicon().drugs else None)


def _is_family(drug: str) -> bool:
    return load_lexicon().drugs[drug].family_word


@cache
def _doses() -> tuple[Mapping[str, Any], ...]:
    return tuple(read_list("doses.yaml", "medloop.serve.agent")["doses"])
