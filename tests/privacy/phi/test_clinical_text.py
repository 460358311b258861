"""Clinical content survives: what looks like a name, a date or a telephone and is none stays, and no such note is held."""

import pytest

from medloop.privacy.phi.scrub import assess

NOTES = """
帕金森病患者服用美多芭后好转。
牙齿矫正需要两年，矫正器要每天清洁。
心电图示窦性心律，窦性心动过缓。
丙肝用利巴韦林联合干扰素治疗。
血压140-160/90-100mmHg，孕38周+2天。
鲍曼不动杆菌肺炎，美罗培南1g每8小时。
桥本甲状腺炎，优甲乐50μg；墨菲征阴性，麦氏点压痛。
亲戚家的孩子和我老公一样，陆续做了检查。
She was born at 38 weeks 2 days by C-section. Born at 39 weeks, 3200 g.
GCS 9/15 on arrival; BP 140-160/90-100 over the last week.
Start Symbicort and Spiriva, continue Entresto 24/26.
Romberg negative, Ortolani and Barlow negative, positive Hawkins test, McBurney point tender.
pH 7.35-7.45, PaCO2 35-45, MoCA 22/30.
[doctor] okay . [patient] mm-hmm , i was gon na ask about the ibuprofen .
""".strip().splitlines()


@pytest.mark.parametrize("note", NOTES)
def test_a_note_about_nobody_stays_as_it_is(note: str) -> None:
    assessment = assess(note)
    assert assessment.cleaned == note and not assessment.quarantined


@pytest.mark.parametrize(
    "text, secret",
    [
        ("患者帕提曼·吾守尔来诊", "帕提曼·吾守尔"),
        ("7床梅 小 雨今日拔管", "梅 小 雨"),
        ("我叫zhao lili，想挂号", "zhao lili"),
        ("我侄女叫朵儿，四岁", "朵儿"),
        ('Patient is known as "Bo" here', "Bo"),
        ("MARGUERITE OAKENSHAW-PELL has a cough", "MARGUERITE OAKENSHAW-PELL"),
        ("HKID A123456(3) was checked", "A123456(3)"),
        ("Her Medicare number 1EG4-TE5-MK73", "1EG4-TE5-MK73"),
        ("NHS 943 476 5919", "943 476 5919"),
        ("回乡证H12345678，来院", "H12345678"),
        ("手机①③⑧⓪⓪①③⑧⓪⓪⓪", "①③⑧"),
        (
            "手机1\ufe0f\u20e33\ufe0f\u20e38\ufe0f\u20e30\ufe0f\u20e30\ufe0f\u20e31\ufe0f\u20e33\ufe0f\u20e38\ufe0f\u20e30\ufe0f\u20e30\ufe0f\u20e30\ufe0f\u20e3",
            "3\ufe0f\u20e38",
        ),
    ],
)
def test_an_unusual_identifier_is_replaced(text: str, secret: str) -> None:
    assert secret not in assess(text).cleaned
