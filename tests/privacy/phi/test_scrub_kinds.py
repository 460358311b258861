"""Kinds of mistakes that an independent test set showed, each with sentences of our own: what must go, and what must stay."""

import pytest

from medloop.embedded.corpus import generate
from medloop.privacy.phi.find import find
from medloop.privacy.phi.scrub import assess


def left_of(text: str, secret: str) -> str:
    """The part of `secret` that no span covers."""
    covered = {index for span in find(text) for index in range(span.start, span.end)}
    start = text.index(secret)
    return "".join(text[i] for i in range(start, start + len(secret)) if text[i].isalnum() and i not in covered)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Your claim 55-102938 was denied", "55-102938"),
        ("the case number on the letter is C-2023-4481", "C-2023-4481"),
        ("Reference on my bill is 7731902", "7731902"),
        ("MRN: 12 34 56", "12 34 56"),
        ("Pathology S23-10452 shows", "S23-10452"),
        ("order 5521093 cancelled", "5521093"),
        ("appeal 2024-00912", "2024-00912"),
        ("Policy no: PL/2023/0091", "PL/2023/0091"),
        ("案件号B2021-88123", "B2021-88123"),
        ("报销单号 BX2023/1102", "BX2023/1102"),
        ("报案号：RP20230001", "RP20230001"),
        ("工单号是 GD99121", "GD99121"),
        ("门诊号 MZ 882013", "MZ 882013"),
        ("病理2023-11827提示", "2023-11827"),
        ("住院号（二次）：88213", "88213"),
        ("住院号（1002345）的患者", "1002345"),
        ("按住院号查到了：2023-0456", "2023-0456"),
        ("住院号后6位是004471", "004471"),
        ("住院号【1002345】", "1002345"),
        ("ZY2023110788号患者", "ZY2023110788"),
        ("送检单 T203917", "T203917"),
        ("她的住院号我记得是1002345", "1002345"),
        ("银行卡尾号4471", "4471"),
        ("lives on 4100 W. 15th St", "4100 W. 15th St"),
        ("pick-up at 690 N. Adams Ave, Apt 3B, Salem OR", "690 N. Adams Ave, Apt 3B, Salem OR"),
    ],
)
def test_a_number_after_its_cue_is_taken_out_whole(text: str, secret: str) -> None:
    assert left_of(text, secret) == ""


@pytest.mark.parametrize(
    "text",
    [
        "Reference: 135-145 mmol/L",
        "Order: 50000 units vitamin D",
        "ICD code E11.9, case 3 of 10, visit 3, report 2021",
        "HR is 94, SpO2 was 97 on room air, glucose was 98",
        "血压135/95，心率95次，体重95kg，三个月十天",
        "at 95 percent, sats of 92, take 90 tablets, I am 91 % sure, score of 92",
        "Trial NCT01234567",
    ],
)
def test_values_codes_and_years_are_no_numbers_of_somebody(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "age 97",
        "she's 94",
        "my grandmother is 96",
        "turned ninety-two last week",
        "ninety-four-year-old woman",
        "one hundred and two years old",
        "her 97th birthday",
        "Mrs. Hill, 93, fell",
        "93F with CHF",
        "93 yr old",
        "97 years of age",
        "aged ninety-three",
        "at 92 she still drives",
        "She'll be 95 in spring",
        "a lady of 91",
        "The patient, 92, reports pain",
        "my husband is also 95",
        "我爷爷96了还抽烟",
        "他今年九十三了",
        "虚岁九十六",
        "96周岁",
        "九旬老人",
        "97高龄",
    ],
)
def test_ages_over_89_are_found_however_they_are_said(text: str) -> None:
    assert "AGE" in {span.kind for span in find(text)}


@pytest.mark.parametrize(
    "text", ["24年3月5日复诊", "25年12月01号", "24/3/5复诊", "20240305入院", "于3.15入院", "正月初五", "腊月二十三", "24.3.5入院"]
)
def test_chinese_dates_are_found_in_every_notation(text: str) -> None:
    assert "DATE" in {span.kind for span in find(text)}


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("my ex-wife Monique called", "Monique"),
        ("Per Obinna, she ate well", "Obinna"),
        ("I saw dr. nakamura last week", "nakamura"),
        ("hello this is kwame boateng calling about my results", "kwame boateng"),
        ("Specimen labeled OYELARAN, FEMI was clotted", "OYELARAN, FEMI"),
        ("Interpreter Min-ji present", "Min-ji"),
        ("Please page Violet Stone when ready", "Violet Stone"),
        ("Patient April Showers did not come", "April Showers"),
        ("Report called to Summer, RN", "Summer"),
        ("Patient Joyce L. Crohn is stable", "Joyce L. Crohn"),
        ("a 40-year-old man from Spokane", "Spokane"),
        ("waited at Willow Creek Urgent Care for hours", "Willow Creek Urgent Care"),
        ("discharged from Riverbend General.", "Riverbend General"),
        ("I walked out of St. Brigid's and went home", "St. Brigid"),
        ("Lena Ott, MD, Maple Valley Regional. Report given", "Maple Valley Regional"),
        ("南京市听雨家苑3-2-501有人摔倒", "南京市听雨家苑3-2-501"),
        ("I walked out of Mount Hebron's and went home", "Mount Hebron's"),
        ("苏平凡，女，45岁，因头晕入院", "苏平凡"),
        ("术者：林一凡；一助：和雨田；", "和雨田"),
        ("前男友谢一鸣来过", "谢一鸣"),
        ("转入博爱康复医院继续治疗", "博爱康复医院"),
        ("请到青山湖医院取报告", "青山湖医院"),
        ("随后去湘雅三医院复查", "湘雅三医院"),
        ("回答不错，但彭龙觉得剂量偏大", "彭龙"),
        ("和田刚一起去的急诊", "田刚"),
    ],
)
def test_a_name_is_known_by_the_place_it_stands_in(text: str, secret: str) -> None:
    assert left_of(text, secret) == ""


@pytest.mark.parametrize(
    "text",
    [
        "Lachman and Kernig were negative.",
        "Kocher clamp, then a Billroth as planned.",
        "Hello doctor, I'm worried. Thanks, Don't stop.",
        "Grace period for the copay ends this week.",
        "Rich, fatty meals make it worse.",
        "Frank blood in stool. Drew blood from the left arm.",
        "The Internal Medicine Clinic and the Pain Clinic are closed.",
        "Heparin at 75 an hour, next check at 9:40 AM.",
        "雷贝拉唑和司来吉兰能一起吃吗？",
        "主诉：高烧两天，张口困难，夜里尚安静。",
        "罗汉果10克、苏木3克、黄连素两片，水煎服。",
        "敬请谅解，本周二班和下周四班对调。",
        "古方里的马鞭草还能用吗？我司已收到。",
        "到大医院看看，去口腔医院挂号，在外院治疗。",
    ],
)
def test_terms_and_everyday_words_are_nobody(text: str) -> None:
    assert find(text) == []


def test_the_prompts_and_answers_we_make_ourselves_are_not_held_back() -> None:
    assert assess("请安全、简短地回答健康问题。").doubt < 0.5
    texts = {message["content"] for row in generate(300, seed=3) for message in row["messages"]}
    held = [text for text in texts if assess(text).quarantined]
    assert len(held) <= len(texts) // 50
