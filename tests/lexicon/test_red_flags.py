"""What counts as a red flag, in patients' words, and what only looks like one."""

from typing import Any

import pytest

from medloop import lexicon
from medloop.lexicon.load import read_list

ENTRIES: list[dict[str, Any]] = read_list("red_flags.yaml")["entries"]
FLAGGED = [
    ("I have crushing chest pain", "cardiac_chest_pain"),
    ("压榨样胸痛，出冷汗", "cardiac_chest_pain"),
    ("the pain in my chest is spreading to my left arm", "radiating_pain"),
    ("胸口疼，放射到左肩", "radiating_pain"),
    ("suddenly his face is drooping", "stroke_face"),
    ("我爸突然嘴角歪斜", "stroke_face"),
    ("her speech is slurred since breakfast", "stroke_speech"),
    ("老人今早说话不清", "stroke_speech"),
    ("weakness on the left side of my body", "stroke_weakness"),
    ("右侧肢体突然没力气", "stroke_weakness"),
    ("this is the worst headache of my life", "thunderclap_headache"),
    ("头痛欲裂，从没这么痛过", "thunderclap_headache"),
    ("a stiff neck and a high fever", "meningitis"),
    ("发烧，脖子僵硬", "meningitis"),
    ("a rash that does not fade when I press a glass on it", "nonblanching_rash"),
    ("a rash with high fever that does not fade when pressed", "nonblanching_rash"),
    ("孩子发烧，有压之不褪色的皮疹", "nonblanching_rash"),
    ("I am coughing up blood", "coughing_blood"),
    ("今天开始咳血", "coughing_blood"),
    ("threw up blood twice", "vomiting_blood"),
    ("black tarry stools for two days", "gi_bleeding"),
    ("大便像柏油一样，柏油样便", "gi_bleeding"),
    ("i cant breathe", "severe_breathlessness"),
    ("突然喘不上气", "severe_breathlessness"),
    ("her lips are turning blue", "blue_lips"),
    ("宝宝嘴唇发紫", "blue_lips"),
    ("my son is having a seizure", "seizure"),
    ("孩子全身抽搐，口吐白沫", "seizure"),
    ("he passed out and won't wake up", "unconscious"),
    ("爷爷晕倒了叫不醒", "unconscious"),
    ("my tongue is swelling after a bee sting", "anaphylaxis"),
    ("吃完花生喉咙发紧，嘴唇肿了", "anaphylaxis"),
    ("I am 30 weeks pregnant and bleeding", "pregnancy_bleeding"),
    ("怀孕三个月，阴道出血", "pregnancy_bleeding"),
    ("32 weeks, the baby has stopped kicking since yesterday", "reduced_fetal_movement"),
    ("怀孕八个月，胎动明显减少", "reduced_fetal_movement"),
    ("my 6 week old baby has a fever", "young_infant_fever"),
    ("两个月的宝宝发烧了", "young_infant_fever"),
    ("my baby has had no wet nappy all day", "infant_dehydration"),
    ("I want to end my life", "suicidal"),
    ("我不想活了", "suicidal"),
    ("she swallowed a button battery", "overdose"),
    ("孩子误服了奶奶的降压药", "overdose"),
    ("the carbon monoxide alarm went off", "carbon_monoxide"),
    ("sudden severe pain in my left testicle", "testicular_torsion"),
    ("突然一侧睾丸剧烈疼痛", "testicular_torsion"),
    ("back pain and numbness between my legs, I wet myself", "cauda_equina"),
    ("腰痛，会阴麻木，大小便失禁", "cauda_equina"),
    ("I suddenly lost vision in one eye", "vision_loss"),
    ("右眼突然看不见", "vision_loss"),
    ("diabetic, vomiting, and his breath smells fruity", "diabetic_ketoacidosis"),
    ("糖尿病，呼吸有烂苹果味", "diabetic_ketoacidosis"),
    ("he hit his head and keeps vomiting", "head_injury"),
    ("孩子摔到头后一直呕吐", "head_injury"),
    ("the bone is sticking out", "major_trauma"),
    ("伤口血止不住", "major_trauma"),
    ("collapsed in the heat and is confused, he stopped sweating in the sun", "heat_stroke"),
    ("孩子发烧41度", "very_high_fever"),
    ("one leg is swollen, red and painful", "leg_clot"),
    ("I cannot pee at all since last night", "urinary_retention"),
    ("boiling water on my toddler's chest", "burns"),
    ("bitten by a snake", "snake_bite"),
]
ORDINARY = [
    "What causes chest pain?",
    "What are the symptoms of Stroke?",
    "What is (are) Seizures ?",
    "What are the treatments for Anaphylaxis?",
    "How to prevent heart attack",
    "I have a runny nose and a mild cough",
    "My back hurts after gardening",
    "Which medicine is best for a sore throat?",
    "I have sneezing fits in spring",
    "neck stiffness from sitting with a mild headache",
    "高血压患者能吃党参吗？",
    "癫痫病能治好吗？",
    "糖尿病能吃什么水果",
    "我感冒流鼻涕三天了",
    "喉咙肿瘤手术要多少钱",
    "小腿抽筋怎么办",
    "月经前胸部疼痛正常吗，月经快来了",
    "咳嗽了一个月，没有咳痰和发热",
]


@pytest.mark.parametrize(("text", "flag"), FLAGGED, ids=[f"{flag}-{number}" for number, (_, flag) in enumerate(FLAGGED)])
def test_a_red_flag_is_seen(text: str, flag: str) -> None:
    assert flag in {m.id for m in lexicon.find_red_flags(text) if not m.negated}


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_question_is_not_flagged(text: str) -> None:
    assert [m.id for m in lexicon.find_red_flags(text) if not m.negated] == []


def test_every_flag_has_both_languages_and_a_name_in_each() -> None:
    assert len(ENTRIES) >= 190
    for entry in ENTRIES:
        assert entry["en"] and entry["zh"] and entry["en_name"] and entry["zh_name"], entry["id"]
        for texts in (entry["example"], entry["counter"]):
            assert texts[0].isascii() and len(texts) == 2 and not texts[1].isascii(), entry["id"]
    for key in ("id", "en_name", "zh_name"):
        assert len({entry[key] for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry["id"] for entry in ENTRIES])
def test_a_flag_is_in_its_example_and_nothing_is_in_its_counter_example(entry: dict[str, Any]) -> None:
    for text in entry["example"]:
        assert entry["id"] in {m.id for m in lexicon.find_red_flags(text) if not m.negated}, text
    for text in entry["counter"]:
        assert [(m.id, m.text) for m in lexicon.find_red_flags(text) if not m.negated] == [], text


@pytest.mark.parametrize(
    "text",
    [
        "no chest pain",
        "I don't have chest pain",
        "denies fever, seizures and coughing up blood",
        "without passing out",
        "no fever, chest pain or cough",
        "没有胸痛",
        "否认胸痛，咯血",
        "没有发烧、咳血、黑便",
        "胸痛已经消失了",
        "her lips are not swollen",
        "never had a seizure",
        "last year I had a seizure",
        "他小时候抽搐过",
        "患癫痫多年，癫痫发作时口吐白沫",
    ],
)
def test_what_is_denied_is_negated(text: str) -> None:
    mentions = lexicon.find_red_flags(text)
    assert mentions and all(m.negated for m in mentions)


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("no fever but chest pain", "chest_pain"),
        ("没有发烧，但是咳血", "coughing_blood"),
        ("没有发烧，咳血两天", "coughing_blood"),
        ("胸痛没有缓解", "chest_pain"),
        ("not only chest pain", "chest_pain"),
        ("无明显诱因突然晕倒", "unconscious"),
        ("不排除咯血", "coughing_blood"),
        ("My chest pain is not going away", "chest_pain"),
        ("no relief, still chest pain", "chest_pain"),
        ("会不会吐血", "vomiting_blood"),
        ("I can't breathe", "severe_breathlessness"),
        ("no chest pain yesterday. Now coughing up blood", "coughing_blood"),
    ],
)
def test_the_reach_of_a_denial_ends(text: str, flag: str) -> None:
    assert flag in {m.id for m in lexicon.find_red_flags(text) if not m.negated}
