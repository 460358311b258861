"""The sentences of the gate: both languages have the same slots, all are used, and none is put together elsewhere."""

import ast
import re
from pathlib import Path

import pytest

from medloop.contracts import GateCheck
from medloop.contracts.gate_reasons import SLOT, reason, reason_texts, said

SOURCE = Path(__file__).parents[2] / "src/medloop"


@pytest.mark.parametrize("key", reason_texts())
def test_both_languages_have_the_same_slots_and_their_own_words(key: str) -> None:
    english, chinese = reason_texts()[key]
    assert sorted(SLOT.findall(english)) == sorted(SLOT.findall(chinese))
    assert re.search(r"[\u4e00-\u9fff]", chinese) or not re.search(r"[a-z]", SLOT.sub("", english)) or key == "panel_alarm"
    assert english.endswith((" ", ")")) and not chinese.endswith(" ") and not re.search(r"[\u4e00-\u9fff]", english)


def test_every_sentence_is_used_and_no_check_of_the_gate_has_another() -> None:
    others = ("loop/gate.py", "registry/promote.py", "store/records/gates.py", "store/records/registry.py")
    files = [*(SOURCE / "evaluate/gate").glob("*.py"), *(SOURCE / name for name in others)]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    made = {
        "share_language",
        "share_template_words",
        "refused_check_fail",
        "refused_check_evidence",
    }  # their names are put together
    assert {key for key in reason_texts() if f'"{key}"' not in code} == made
    assert "GateCheck(name=" not in code, "every reason has its key"


def test_every_place_that_makes_a_reason_fills_its_slots() -> None:
    """Seen: one of two places did not fill a new slot, and a rollback would have ended with a traceback."""
    checked = 0
    for path in SOURCE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("reason", "reason_part")):
                continue
            names = {word.arg for word in call.keywords}
            if None in names or not (
                call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value in reason_texts()
            ):
                continue
            checked += 1
            assert names == {*SLOT.findall(reason_texts()[call.args[0].value][0])}, f"{path.name}, line {call.lineno}"
    assert checked > 50


def test_a_reason_is_said_in_both_languages_and_values_are_never_filled_again() -> None:
    check = GateCheck.because("incidents", "fail", reason("incidents_open", n=2))
    assert check.reason == "2 safety incidents are open; two people have to close them." and check.parts is not None
    assert said(check.parts, "zh") == "有 2 起安全事件未关闭，需两人关闭。"
    named = reason("critical_failed", n=1, most=0, named="{most} {n}")
    assert said([named]) == "1 new critical failures (at most 0 are accepted): {most} {n}."
    with pytest.raises(AssertionError, match="slots"):
        reason("incidents_open", count=2)
