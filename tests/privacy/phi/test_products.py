"""Brands, herbs and words are left by their place, and names that both Chinese networks see are replaced."""

import pytest

from medloop.privacy.phi.scrub import assess

WORDS = (
    "可以同时吃龙牧壮骨颗粒吗？",
    "山香益心舒这个药治心衰吗",
    "锗石的副作用有什么？",
    "一个小肉肉（民间俗称拴马桩），摸上去是软的",
    "徐州哪里治疗白癜风最好",
    "得了克山病该怎么办",
    "现在最前沿的就是祁澳牌红豆杉中草药",
    "医生，请问水光针和玻尿酸有什么区别？",
    "I took this medicine called Clantix or something.",
    "She takes the drug Lunavex for sleep.",
    "acarbose (Precose) and glyburide (DiaBeta, Glynase)",
    "Cervical: Nontender over the spine.",
    "What is (are) Preauricular sinus?",
    "Continue Synthroid. Status post renal transplant.",
    "Theres no antibiotic for it.",
    "The Friday clinic needs it.",
)
NAMES = (
    ("患者龙牧壮颗粒剂已开", "龙牧壮"),
    ("王芳吃胶囊了吗", "王芳"),
    ("医院来了王芳、李娟、赵敏三个人", "李娟"),
    ("李明病了三天，没有吃药。", "李明"),
    ("张伟病重住院了。", "张伟"),
    ("妻子王芳也称患者夜间打鼾。", "王芳"),
    ("李明开的药管用吗？", "李明"),
    ("处方医生:王芳、李娟、赵敏。", "王芳"),
    ("I stopped the medication Okonjo prescribed last week.", "Okonjo"),
    ("Spoke with Resnick about her results.", "Resnick"),
    ("The Underhill family came.", "Underhill"),
    ("The antibiotics Overfield got did not work.", "Overfield"),
    ("Discussed with colorectal (Okonjo) and agreed.", "Okonjo"),
    ("刘子轩奶粉过敏怎么办", "刘子轩"),
    ("王芳这药还要吃吗", "王芳"),
    ("The urine sample of Okonjo was positive.", "Okonjo"),
    ("I spoke to the chemotherapy nurse (Okonjo) today.", "Okonjo"),
    ("Cardiology (Okonjo) happy for beta blocker uptitration.", "Okonjo"),
    ("seen by cardiology (Okonjo) today", "Okonjo"),
    ("图雅摔伤后左腕肿痛，石膏固定四周。", "图雅"),
    ("石头从滑梯上摔了，吐了一次，要不要拍CT？", "石头"),
)


@pytest.fixture(scope="module", autouse=True)
def _lists_are_read() -> None:
    assess("王芳 came")  # reading lists and weights counts against the time of the first text


@pytest.mark.parametrize("text", WORDS)
def test_what_is_taken_or_said_is_nobody(text: str) -> None:
    assessment = assess(text)
    assert not assessment.spans and not assessment.quarantined


@pytest.mark.parametrize(("text", "name"), NAMES)
def test_a_person_beside_a_drug_is_found(text: str, name: str) -> None:
    assert name not in assess(text).cleaned


def test_an_enumeration_of_drugs_names_nobody() -> None:
    assert not assess("肿瘤药品如：万珂．力比泰．多吉美．邦罗力．美罗华．派罗新．惠尔血．复达欣．").spans
    assert len(assess("家属签到：王芳、李娟、赵敏。").spans) == 3


def test_a_long_text_keeps_its_names_and_not_the_words_cut_out_of_it() -> None:
    rest = "以上情况已经持续了半年多，平时饮食睡眠都还可以，没有做过其他检查，想请您帮忙看一下是什么原因引起的，谢谢。"
    assert not assess("溃疡呈火山口状，底部不平而污秽，边缘整齐，周围皱襞可见中断。" + rest).spans
    assert "陈静瑜" not in assess("同病房还有陈静瑜和她的家人。" + rest).cleaned


@pytest.mark.parametrize(
    "text",
    [
        "打120急救电话，并保持电话畅通。",
        "请先向医生咨询。",
        "Call your local emergency number now (911, 112, 999; in China 120).",
    ],
)
def test_numbers_of_an_ambulance_are_nobody_s(text: str) -> None:
    assessment = assess(text)
    assert not assessment.spans and not assessment.quarantined


@pytest.mark.parametrize("text", ["我的电话后四位是零零一三", "call 617 555, 0143", "Her phone: 911 555 0143"])
def test_a_number_of_somebody_is_still_found_or_held(text: str) -> None:
    assessment = assess(text)
    assert assessment.spans or assessment.quarantined
