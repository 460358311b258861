"""Drugs, doses, groups and urgent advice."""

import pytest

from medloop import lexicon


def drugs(text: str, *, negated: bool = False) -> set[str]:
    return {m.id for m in lexicon.find_medication(text) if m.kind == "drug" and m.negated == negated}


@pytest.mark.parametrize(
    ("text", "drug"),
    [
        ("Tylenol at night", "paracetamol"),
        ("扑热息痛", "paracetamol"),
        ("吃了芬必得", "ibuprofen"),
        ("Z-Pack", "azithromycin"),
        ("头孢克肟分散片", "cefixime"),
        ("salbutamol", "salbutamol"),
        ("抗生素", "any_antibiotic"),
    ],
)
def test_generic_and_brand_names_in_both_languages(text: str, drug: str) -> None:
    assert drugs(text) == {drug}


@pytest.mark.parametrize(
    ("text", "mg", "daily"),
    [
        ("400 mg", 400, False),
        ("0.5克", 500, False),
        ("500-1000mg", 1000, False),
        ("每天吃二甲双胍5000毫克", 5000, True),
        ("1,000 mg daily", 1000, True),
        ("250 mcg", 0.25, False),
        ("loperamide 32 mg a day", 32, True),
    ],
)
def test_doses_are_read_in_milligrams(text: str, mg: float, daily: bool) -> None:
    (dose,) = lexicon.find_doses(text)
    assert dose.mg == pytest.approx(mg) and dose.daily is daily


def test_a_dose_per_kilogram_is_left_out() -> None:
    assert lexicon.find_doses("15 mg per kilogram, 10mg/kg, 每公斤15毫克") == ()


def test_letters_that_only_look_like_a_dose_are_not_one() -> None:
    assert lexicon.find_doses("anticoagulants (an-te-ko-AG-u-lants), 5 days, 3 times") == ()


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("every six hours", 4),
        ("three times a day", 3),
        ("每天五次", 5),
        ("一天不超过四次", 4),
        ("每8小时一次", 3),
        ("twice daily", 2),
    ],
)
def test_frequencies_are_read_per_day(text: str, times: float) -> None:
    assert [frequency.per_day for frequency in lexicon.find_frequencies(text)] == [times]


@pytest.mark.parametrize(
    "text",
    [
        "Do not take ibuprofen",
        "avoid ibuprofen",
        "ibuprofen should be avoided",
        "paracetamol but not ibuprofen",
        "孕妇禁用布洛芬",
        "不要吃布洛芬",
        "布洛芬不建议孕期使用",
        "instead of ibuprofen",
        "布洛芬和阿司匹林都禁用",
    ],
)
def test_a_forbidden_drug_is_negated(text: str) -> None:
    assert "ibuprofen" in drugs(text, negated=True)


def test_a_ban_reaches_over_a_list_and_ends_at_the_alternative() -> None:
    text = "孕妇不要吃布洛芬、阿司匹林，可以用对乙酰氨基酚"
    assert drugs(text, negated=True) == {"ibuprofen", "aspirin"} and drugs(text) == {"paracetamol"}
    assert drugs("Avoid ibuprofen, naproxen and aspirin", negated=True) == {"ibuprofen", "naproxen", "aspirin"}


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("I am 20 weeks pregnant", "pregnancy"),
        ("我怀孕了", "pregnancy"),
        ("my 3-year-old son", "child"),
        ("宝宝两岁半", "child"),
        ("我儿子6岁", "child"),
        ("my 82-year-old mother", "elderly"),
        ("我爷爷", "elderly"),
        ("我妈妈72岁", "elderly"),
        ("aged 70", "elderly"),
    ],
)
def test_groups_by_word_and_by_age(text: str, group: str) -> None:
    assert {m.id for m in lexicon.find_groups(text) if not m.negated} == {group}


@pytest.mark.parametrize("text", ["I am 35 years old", "我40岁", "baby aspirin daily", "避孕药怎么吃", "生完孩子以后腰疼"])
def test_adults_belong_to_no_group(text: str) -> None:
    assert lexicon.find_groups(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "Call 911 now.",
        "Go to the nearest emergency department.",
        "You need immediate medical attention",
        "Do not wait: call an ambulance",
        "立即拨打120",
        "马上去急诊",
        "请立即就医",
        "不要拖延，立即去医院",
        "如果没有好转，请立即去急诊",
    ],
)
def test_urgent_advice_is_seen(text: str) -> None:
    mentions = lexicon.find_urgent_advice(text)
    assert mentions and not any(m.negated for m in mentions)


@pytest.mark.parametrize(
    "text",
    [
        "There is no need to call an ambulance",
        "You don't have to go to the emergency room",
        "不用去急诊",
        "没必要拨打120",
        "This is not an emergency",
    ],
)
def test_urgent_advice_taken_back_is_negated(text: str) -> None:
    assert all(m.negated for m in lexicon.find_urgent_advice(text))


@pytest.mark.parametrize(
    "text", ["See a doctor if it lasts longer than a week.", "如果超过三天不好请去看医生", "Rest and drink fluids"]
)
def test_ordinary_advice_is_not_urgent(text: str) -> None:
    assert lexicon.find_urgent_advice(text) == ()


def test_every_avoid_entry_names_something_the_lexicon_can_find() -> None:
    known = {f"drug:{name}" for name in lexicon.drugs()} | {
        id for kind, id in lexicon.load.load_lexicon().entries if kind in ("group", "condition")
    }
    for drug in lexicon.drugs().values():
        assert drug.avoid <= known, drug.id
        if drug.max_single and drug.max_daily:
            assert (drug.usual or 0) <= drug.max_single <= drug.max_daily, drug.id
