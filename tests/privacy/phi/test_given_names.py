"""A person of the record who is named again without the surname."""

from medloop.privacy.phi import mentions
from medloop.privacy.phi.scrub import Scrubber


def test_a_given_name_alone_is_the_same_person() -> None:
    scrubber = Scrubber()
    assert scrubber.scrub("患者张晓雅来诊。昨天晓雅说头痛。") == "患者[NAME_1]来诊。昨天[NAME_1]说头痛。"
    assert scrubber.scrub("嘱晓雅按时服药。") == "嘱[NAME_1]按时服药。"
    assert Scrubber().scrub("欧阳沛然昨天发热，沛然的妈妈很担心。") == "[NAME_1]昨天发热，[NAME_1]的妈妈很担心。"


def test_a_given_name_that_two_persons_have_is_neither_of_them() -> None:
    assert Scrubber().scrub("患者张晓雅、患者李晓雅来诊。昨天晓雅说头痛。").endswith("昨天[NAME_3]说头痛。")


def test_a_given_name_is_found_wherever_it_stands_unless_it_is_a_word() -> None:
    assert list(mentions.find("已按晓雅意愿处理", ["张晓雅"])) == [(2, 4, "NAME")]
    assert list(mentions.find("已按沛然意愿处理", ["欧阳沛然"])) == [(2, 4, "NAME")]
    for text, name in (("他是文化局的", "张文化"), ("注意安全", "王安全"), ("患者李晓雅", "张晓雅"), ("说健康很重要", "李健康")):
        assert list(mentions.find(text, [name])) == []
