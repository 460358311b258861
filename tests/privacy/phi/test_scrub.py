"""Identifiers become placeholders, ordinary medical text stays, and what cannot be taken out is refused."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from medloop.privacy.phi.find import find
from medloop.privacy.phi.normalize import fold
from medloop.privacy.phi.numbers import is_bank_card, is_mobile, is_resident_id, luhn
from medloop.privacy.phi.patterns import PATTERNS, find_patterns
from medloop.privacy.phi.scrub import Scrubber, Unscrubbable

ID = "11010519491231002X"  # the standard's own example


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"身份证号{ID}，", "ID"),
        ("证件 1101 0519 4912 3100 2X", "ID"),
        ("证件 110 105 199 901 010 008X", "ID"),
        ("电话１３８００１３８０００", "PHONE"),
        ("call 138 0013 8000 now", "PHONE"),
        ("+86 138-0013-8000", "PHONE"),
        ("请打 010-62345678", "PHONE"),
        ("reach me at (212) 555-0123 x44", "PHONE"),
        ("共有 24774662069 已发", "NUMBER"),
        ("订单 24774662069 已发", "RECORD"),
        ("card 4111 1111 1111 1111", "CARD"),
        ("工行卡：6222-0212-3456-7891", "CARD"),
        ("证件号440106 19850612 0034", "ID"),
        ("account ending in 4421", "RECORD"),
        ("Rx# 6612345", "RECORD"),
        ("军官证 南字第1234567号", "RECORD"),
        ("处方号 CF2023001", "RECORD"),
        ("call me at 5550199", "PHONE"),
        ("fe80::1ff:fe23:4567:890a", "IP"),
        ("GPS 39.9042, 116.4074", "ADDRESS"),
        ("My zip code is 35649", "ADDRESS"),
        ("邮编 310000", "ADDRESS"),
        ("seen 14-Mar-2023", "DATE"),
        ("on the 14th of March 2023", "DATE"),
        ("admitted March 14", "DATE"),
        ("seen on 3/14", "DATE"),
        ("复诊14.03.2023", "DATE"),
        ("二〇二三年三月五日出生", "DATE"),
        ("九十五岁高龄", "AGE"),
        ("she turned 91", "AGE"),
        ("Referral: van der Veiver, Jerzy. SSN 367-58-7803", "NAME"),
        ("mail a.b@clinic.example.org", "EMAIL"),
        ("mail jane (at) clinic (dot) org", "EMAIL"),
        ("1--3--8--0--0--1--3--8--0--0--0", "PHONE"),
        ("IBAN GB82 WEST 1234 5698 7654 32", "IBAN"),
        ("health plan ID QRS123456789", "RECORD"),
        ("device serial number AB-123456", "RECORD"),
        ("VIN 1HGCM82633A004352", "RECORD"),
        ("see IMG_2041.jpg", "PHOTO"),
        ("护照号E12345678", "RECORD"),
        ("医保号A123456789", "RECORD"),
        ("SSN 078-05-1120", "SSN"),
        ("MRN: 55707238", "RECORD"),
        ("住院号ZY290104", "RECORD"),
        ("微信wx_yantang", "RECORD"),
        ("车牌沪ALJ26G", "PLATE"),
        ("born 04/04/1975", "DATE"),
        ("出生于1975年4月4日", "DATE"),
        ("on March 3rd, 2019", "DATE"),
        ("see https://example.org/p?id=7", "URL"),
        ("from 192.168.10.24", "IP"),
        ("she is 93 and well", "AGE"),
        ("家住北京市朝阳区建国路8号", "ADDRESS"),
        ("lives at 12 Oak Hill Road, Salem", "ADDRESS"),
        ("Dr. Maria van der Berg said", "NAME"),
        ("My name is Jane Miller", "NAME"),
        ("患者王芳，女，38岁", "NAME"),
        ("主管医师：陈淑兰。", "NAME"),
        ("欧阳医生说", "NAME"),
        ("王芳昨天来复诊", "NAME"),
        ("Yesterday Annabelle Kowalczyk called the clinic", "NAME"),
        ("I moved here from Gdansk", "PLACE"),
        ("于西安市第一人民医院就诊", "ORG"),
        ("admitted to Davidport General Hospital", "ORG"),
    ],
)
def test_each_kind_is_found(text: str, kind: str) -> None:
    assert kind in {span.kind for span in find(text)}, find(text)


@pytest.mark.parametrize(
    "text",
    [
        "Take ibuprofen 400 mg every 8 hours, at most 1200 mg a day.",
        "血压162/98 mmHg，血肌酐 88 μmol/L，白细胞 11.2×10^9/L，体温38.5℃。",
        "患者高血压10年，常规服药，任何医生都会建议复查。",
        "应在医生指导下用药，必要时医生会复查月经周期，骨小梁的数目减少。",
        "国药准字H20059876，每次0.5g，一日3次，疗程7-10天。",
        "Parkinson disease, Foley catheter, ICD-10 E11.9, CPT 99213.",
        "I am Having chest pain. The doctor should call 911 or 120.",
        "白芍、黄芪各10克；张力性气胸；方法和常规；谢谢医生，祝您健康。",
        "建议去正规医院检查，当地中医院也可以，医生会解释许多事项。",
        "The Charcot-Marie-Tooth disease and Hashimoto thyroiditis were stable on Synthroid.",
        "=Answer",
        "Unsafe",
        "Outdated Guideline",
        "LGTM",
        "Missing Warfarin interaction",
        "Model B is better, Answer A forgot the Dose.",
        "回答很全面，但是没有给出处。",
        "penicillin 2000000 IU, platelets 250000, 5-10 mg, 1/2 tablet, 24/7",
    ],
)
def test_medical_text_stays_as_it_is(text: str) -> None:
    assert Scrubber().scrub(text) == text


def test_the_same_identifier_has_the_same_placeholder_in_question_and_answer() -> None:
    scrubber = Scrubber()
    question = scrubber.scrub("我叫王芳，手机13800138000")
    answer = scrubber.scrub("王芳您好，我们会打 138-0013-8000 或 13900139000")
    assert question == "我叫[NAME_1]，手机[PHONE_1]"
    assert answer == "[NAME_1]您好，我们会打 [PHONE_1] 或 [PHONE_2]"


@pytest.mark.parametrize(
    "text", ["手机一三八零零一三八零零零", "1----3----8----0----0----1----3----8----0----0----0", "bad \ud800 text"]
)
def test_what_cannot_be_taken_out_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(Unscrubbable) as refusal:
        Scrubber().scrub(text)
    assert not any(word in str(refusal.value) for word in ("八", "8", "bad"))


@given(st.integers(0, 16), st.integers(1, 9))
def test_one_wrong_digit_breaks_a_resident_id(index: int, by: int) -> None:
    wrong = ID[:index] + str((int(ID[index]) + by) % 10) + ID[index + 1 :]
    assert is_resident_id(ID) and not is_resident_id(wrong)


@given(st.from_regex(r"1[3-9][0-9]{9}", fullmatch=True), st.sampled_from(["", " ", "-"]), st.booleans())
def test_every_mobile_is_taken_out_however_it_is_written(number: str, gap: str, wide: bool) -> None:
    written = gap.join((number[:3], number[3:7], number[7:]))
    text = "".join(chr(ord(c) + 0xFEE0) if c.isdigit() else c for c in written) if wide else written
    assert is_mobile(number) and not any(c.isdigit() for c in Scrubber().scrub(f"请联系{text}谢谢").replace("_1", ""))


@given(st.text(max_size=300))
def test_scrubbing_twice_changes_nothing_more(text: str) -> None:
    try:
        once = Scrubber().scrub(text)
    except Unscrubbable:
        return
    assert Scrubber().scrub(once) == once


def test_checks_know_their_numbers() -> None:
    assert luhn("4111111111111111") and not luhn("4111111111111112")
    assert is_bank_card("4111111111111111") and not is_bank_card("9111111111111111")
    assert len(fold("１２ 　三")) == 5


@given(st.text(alphabet="0123456789 -./:+@年月日号住址路街wx微信qQDOBborn电话St ,A", max_size=60))
@example("号123")  # as few digits as a code may have
def test_the_cheap_look_spares_only_patterns_that_cannot_match(text: str) -> None:
    folded = fold(text)
    every = [
        (match.start(pattern.group), match.end(pattern.group), pattern.kind)
        for pattern in PATTERNS
        for match in pattern.regex.finditer(folded)
    ]
    assert list(find_patterns(folded, len(re.findall(r"\d", folded)))) == every


@pytest.mark.parametrize("verb", ["Analyze", "Classify", "Prioritize", "Summarise", "Describe", "Interpret"])
def test_a_request_that_begins_with_a_verb_has_no_name(verb: str) -> None:
    assert Scrubber().scrub(f"{verb} this skin rash") == f"{verb} this skin rash"
    assert "Hargreaves" not in Scrubber().scrub(f"{verb} the rash of Amelia Hargreaves")
