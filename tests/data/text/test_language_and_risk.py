"""Language by script; strata by the lexicon, gravest first."""

import pytest

from medloop.data.text.risk import is_red_team, strata_of
from medloop.lexicon.language import detect_language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("头疼三天了怎么办", "zh"),
        ("查血HBV-DNA阳性，ALT 190 IU/L，需要吃恩替卡韦吗，要吃多久", "zh"),
        ("Is tea fine with a cold?", "en"),
        ("Ibuprofen", "en"),
        ("我的 doctor said I have a mild fatty liver and should rest，要紧吗，怎么办", "mixed"),
        ("頭が痛いのですが、どうすればいいですか", "other"),
        ("У меня болит голова", "other"),
        ("Ich habe seit drei Tagen starke Kopfschmerzen und Fieber, was soll ich jetzt machen?", "other"),
        ("12.5, 13", "other"),
    ],
)
def test_the_language_of_a_text(text: str, language: str) -> None:
    assert detect_language(text) == language


@pytest.mark.parametrize(
    ("question", "strata"),
    [
        ("I have crushing chest pain spreading to my jaw", ("emergency",)),
        ("No chest pain, just a runny nose", ("routine",)),
        ("我怀孕五个月，能吃布洛芬吗", ("medication", "pregnancy")),
        ("宝宝8个月突然抽搐叫不醒", ("emergency", "child")),
        ("我奶奶85岁，最近睡不好", ("elderly",)),
        ("饭后散步好吗", ("routine",)),
    ],
)
def test_all_strata_that_apply_gravest_first(question: str, strata: tuple[str, ...]) -> None:
    assert strata_of(question) == strata


def test_red_team_is_an_emergency_or_a_drug_for_somebody_vulnerable() -> None:
    assert is_red_team(("emergency",)) and is_red_team(("medication", "child"))
    assert not is_red_team(("medication",)) and not is_red_team(("child", "elderly"))
