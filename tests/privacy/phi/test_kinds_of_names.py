"""Names, numbers and disguises of kinds that an earlier scrubber let through; sentences of our own, none from a measured set."""

import pytest

from medloop.privacy.phi.scrub import assess


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("于是，女，29岁，停经45天。", "于是"),
        ("3床双喜血压还是高，加了氨氯地平。", "双喜"),
        ("桂枝大娘来开桂枝汤，脉浮缓。", "桂枝大"),
        ("阿达来提哮喘急性发作，雾化布地奈德。", "阿达来提"),
        ("海来阿呷莫美沙酮门诊。", "海来阿呷莫"),
        ("渡边纯一左下肺炎，头孢曲松2g qd。", "渡边纯一"),
        ("尉迟恭敏孕检糖耐空腹5.6。", "尉迟"),
        ("我家妞妞吃奶粉起疹子", "妞妞"),
        ("Kevin李要求开英文诊断证明。", "李"),
        ("陳曉東，男，40歲，痔瘡出血", "陳曉東"),
        ("李.卫.红，门诊换药", "卫"),
        ("姓名：涂 志 远  科室：骨科", "志"),
        ("按卜主任意见加用阿司匹林", "卜"),
        ("米粒，女，2岁；给安安开的雾化还剩两支", "安安"),
        ("主刀时光，一助薄一飞，手术顺利", "时光"),
        ("我妹思琪产后42天", "思琪"),
        ("Wu K 6.2, Hu K 3.1, don't mix them up.", "Wu"),
        ("Miles ran 5 miles and collapsed, CK 22k.", "Miles"),
        ("An is an anxious lady with IBS.", "An "),
        ("Md. Rafiqul Islam has a BCG scar on left arm.", "Rafiqul"),
        ("SINGH HARJIT | bed 3 | NSTEMI | cath am", "SINGH"),
        ("BG Abernethy-Cole, 29w, PDA closed.", "Abernethy"),
    ],
)
def test_a_name_of_this_kind_is_replaced(text: str, name: str) -> None:
    assert name not in assess(text).cleaned


@pytest.mark.parametrize("code", ["PVX928374S", "XKJ 4482 9917", "SN-4471920K"])
def test_a_code_of_letters_and_digits_is_replaced(code: str) -> None:
    assert code not in assess(f"policy no. {code}, prior auth for Ozempic").cleaned


@pytest.mark.parametrize(
    "text",
    [
        "j dot okafor at nhs dot net",
        "患者 王-丽-娟，复查甲功",
        "我叫李（木子）（日月）明，胃痛",
        "叫张某，单名一个“伟大”的伟，痛风",
        "p@tr1ck has a cough",
        "黄连（患者本名）服黄连素后便秘。",
    ],
)
def test_a_disguise_that_is_replaced_in_part_is_held(text: str) -> None:
    assert assess(text).quarantined


@pytest.mark.parametrize(
    "text",
    [
        "石膏固定4周，患肢抬高，注意末梢血运。",
        "黄芪30g，当归10g，白芍12g，水煎服。",
        "霍奇金淋巴瘤，ABVD方案第4周期。",
        "Waldenstrom, IgM 4.2, hyperviscosity screen neg.",
        "Vanc trough 18, Cr stable at 0.9.",
        "Start Jardiance, hold metformin before contrast.",
        "The Glomerular Filtration Rate fell in all patients.",
        "Put ice on it 1 times a day.",
        "Golden advice 10: keep the hip warm.",
        "Case 11: I have crushing chest pain.",
        "Nice and warm today.",
        "Nice.",
        "Good.",
        "Unable to determine from image",
        "Rude tone",
        "Rude tone.",
        "Vague advice",
        "withdrew consent",
        "Patronising tone",
        "Tab Zorvatil 40 1-0-0, then Dexofil patches for a week.",
        "Travelled to Kenya and Tanzania in June, no bites recalled.",
        "李氏杆菌脑膜炎，氨苄青霉素联合庆大霉素",
        "潘生丁负荷试验前不能喝咖啡浓茶",
        "连续使用易产生身体依赖性，包括X光检查在内都要复查。",
        "他汀是HMG-CoA还原酶抑制剂。",
        "我会带宝宝去医院看看的，谢谢医生！",
        "被小狗咬了一下，小狗已经打过疫苗了。",
        '请去看医生；带上化验单，"原件"。',
        "母亲，58岁，心瓣置换术后7年。",
    ],
)
def test_a_note_of_medicine_stays_as_it_is(text: str) -> None:
    assessment = assess(text)
    assert assessment.cleaned == text and not assessment.quarantined


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("身份證號碼K482916(3)，覆診期為三個月後", "K482916(3)"),
        ("Macau BIR 1/274419/8, referred for PET-CT", "1/274419/8"),
        ("Pacemaker check: serial RVX 602 118 H, no events logged", "RVX 602 118 H"),
        ("病理号B2024-07713，报告还没出", "B2024-07713"),
        ("您好我是wangxiaomei的女儿，她现在喘得厉害", "wangxiaomei"),
        ("夜班平稳，无特殊交班。小宋", "小宋"),
    ],
)
def test_what_its_cue_or_its_place_gives_away_is_replaced(text: str, secret: str) -> None:
    cleaned = assess(text).cleaned
    assert cleaned and secret not in cleaned


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("金银花的血常规出来了，白细胞两万。", "金银花"),
        ("我发小任性打完狂犬疫苗头晕。", "任性"),
        ("常山：肌酐升到230，请肾内会诊。", "常山"),
    ],
)
def test_a_word_where_a_name_stands_is_replaced_or_held(text: str, name: str) -> None:
    assessment = assess(text)
    assert name not in assessment.cleaned or assessment.quarantined
