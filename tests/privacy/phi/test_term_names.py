"""Words of medicine that are names, too, in a person's place; dates behind words of pain; one network, read by several threads."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from medloop.lexicon.load import load_lexicon
from medloop.privacy.phi import scrub
from medloop.privacy.phi.english import network
from medloop.privacy.phi.english.tagger import Token
from medloop.privacy.phi.scrub import assess

PLACES_ZH = (
    ("夏天李子雪莲曲靖祖国空军", "姓名：{} 性别：女"),
    ("夏天李子雪莲曲靖祖国空军", "我叫{}"),
    ("夏天李子雪莲曲靖", "我女儿{}发烧了"),
    ("夏天李子雪莲曲靖", "请{}到3号诊室就诊"),
    ("夏天李子雪莲", "{}说她头痛"),
    ("夏天李子雪莲", "3床{}血压偏高"),
    ("夏天李子雪莲", "责任护士：{}"),
    ("夏天李子雪莲", "{}和张伟都要复查"),
    ("夏天李子雪莲", "我是{}，想问一下血压"),
    ("夏天李子雪莲", "家属{}签字"),
    ("夏天李子雪莲", "{}，女，45岁，头痛三天"),
    ("李子雪莲", "我朋友{}昨天住院"),
    ("李子雪莲", "{}昨晚发热"),
    ("痘痘", "我家{}拉肚子"),
    ("痘痘", "{}妈妈，孩子今天还吐吗"),
)


@pytest.mark.parametrize(("words", "frame"), PLACES_ZH)
def test_a_chinese_word_in_a_persons_place_is_replaced(words: str, frame: str) -> None:
    for word in (words[start : start + 2] for start in range(0, len(words), 2)):
        cleaned = assess(frame.format(word)).cleaned
        assert word not in cleaned and "[NAME_" in cleaned, frame.format(word)


@pytest.mark.parametrize(
    "text",
    [
        "请先拨打急救电话。", "先拨打120。", "我妈夏天经常头晕", "我女儿夏天容易发烧", "夏天我女儿发烧了", "我是夏天开始发病的", "糖尿病人可以吃李子吗",
        "我夏天吃李子拉肚子", "我女儿痘痘发炎", "脸上长痘痘怎么办", "我老公李子过敏", "天山雪莲可以治痛经吗", "患者夏天受凉后发热",
    ],
)  # fmt: skip
def test_a_chinese_word_elsewhere_stays(text: str) -> None:
    assert assess(text).cleaned == text and not assess(text).quarantined


# Also names or everyday words of people: a patient called 戴芬 is hidden, and the medicine with her.
ALSO_PEOPLE = frozenset("戴芬 代文 伟哥 达菲 可威 毓婷 senna".split())
FRAMES = {
    "zh": ("我在吃{}。", "患者服用{}每天两次。", "{}能和酒一起吃吗？", "医生给开了{}，要吃多久？"),
    "en": ("I take {} twice a day.", "Is {} safe in pregnancy?", "My doctor gave me {}.", "She was given {} in hospital."),
}


@pytest.mark.parametrize("language", FRAMES)
def test_no_medicine_of_the_lexicon_is_a_person(language: str) -> None:
    names = {name for drug in load_lexicon().drugs.values() for name in getattr(drug, language)} - ALSO_PEOPLE
    texts = [frame.format(name) for name in names for frame in FRAMES[language]]
    assert len(texts) > 1000
    assert not [text for text in texts if (result := assess(text)).cleaned != text or result.quarantined]


SYMPTOMS = "Headache Itching Nausea Vomiting Fever Fatigue Insomnia Heartburn Thirst Cough Snoring Acne Eczema Swallowing".split()


@pytest.mark.parametrize(
    "what", ["gets worse at night.", "started two days ago.", "is worse after meals.", "went away after a week."]
)
def test_a_symptom_that_opens_a_sentence_is_nobody(what: str) -> None:
    texts = [f"{word} {what}" for word in SYMPTOMS] + [f"It is better now. {word} {what}" for word in SYMPTOMS]
    assert not [text for text in texts if (result := assess(text)).cleaned != text or result.quarantined]
    assert "Pain" in assess(f"Pain {what}").cleaned


@pytest.mark.parametrize(
    "text", ["James Pain, 45, has chest pain.", "Mr. Pain is here.", "Susan Hunger called.", "Hunger says he is dizzy."]
)
def test_a_symptom_in_a_persons_place_is_replaced(text: str) -> None:
    cleaned = assess(text).cleaned
    assert "[NAME_1]" in cleaned and not {"James", "Pain", "Susan", "Hunger"} & set(cleaned.replace(",", "").split())


@pytest.mark.parametrize("name", ["Penrose", "Nivea", "Afrin", "Seltzer", "Tigan", "Artane", "Halcion", "Zoloft"])
def test_an_english_term_in_a_persons_place_is_replaced(name: str) -> None:
    for frame in (
        "My name is {}.", "my name is {}", "name: {}", "Patient name: {}", "Patient: {}", "My wife {} has a rash",
        "I am {}, 45 years old", "Spoke with {} by phone", "{} said he is dizzy", "Signed, {}", "Marina {}, 45",
        "{}, 45, male, has chest pain.", "This is {} calling about my results",
    ):  # fmt: skip
        text = frame.format(name)
        assessment = assess(text)
        assert name not in assessment.cleaned and "[NAME_1]" in assessment.cleaned, text


@pytest.mark.parametrize(
    "text",
    [
        "I use Afrin spray.", "The Penrose drain was removed.", "My wife uses Nivea cream.", "She was started on Zoloft.",
        "Drug name: Zoloft", "Doctor: What do you take?\nPatient: Zoloft.", "My father takes Coumadin and Lasix.",
    ],
)  # fmt: skip
def test_an_english_term_elsewhere_stays(text: str) -> None:
    assert assess(text).cleaned == text


@pytest.mark.parametrize(
    "text",
    [
        "Please follow up on 3/10 with cardiology.", "She followed up on 11/10", "Patient will follow up by 5/10.",
        "Chest pain since 3/10, admitted", "headache on 3/10", "Glucose level on 4/10", "BP was down on 7/10",
        "Pain after 3/10 was worse", "pain until 3/10", "We followed up to 3/10", "Glucose level of 4/10",
    ],
)  # fmt: skip
def test_the_tenth_is_a_date_behind_words_of_pain(text: str) -> None:
    assert "/10" not in assess(text).cleaned and "[DATE_1]" in assess(text).cleaned


@pytest.mark.parametrize(
    "text",
    [
        "Pain increasing to 10/10 overnight",
        "The pain went up to 8/10",
        "a pain level of 8/10",
        "pain of 7/10",
        "pain down to 3/10",
    ],
)
def test_a_score_of_pain_stays(text: str) -> None:
    assert assess(text).cleaned == text


def test_threads_get_the_vector_of_their_own_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_CACHED", 700)  # it fills up again and again
    shared, alone = network.WordNetwork(_weights()), network.WordNetwork(_weights())
    words = [f"word{number}" for number in range(2_000)]
    texts = [[words[(7 * start + 3 * step) % len(words)] for step in range(20)] for start in range(1_500)]

    def vectors(text: list[str]) -> list[float]:
        return shared.chances([Token(0, len(word), word) for word in text])

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(vectors, texts))
    for text, chances in zip(texts, found, strict=True):
        assert chances == alone.chances([Token(0, len(word), word) for word in text])


def test_a_word_is_known_once_its_vector_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers take no lock."""
    shared, rows_of, known = network.WordNetwork(_weights()), network.rows_of, list[bool]()
    monkeypatch.setattr(network, "rows_of", lambda word: known.append(word in shared._known[0]) or rows_of(word))
    shared.chances([Token(0, 4, "fever"), Token(5, 9, "cough")])
    assert known == [False, False] and set(shared._known[0]) == {"fever", "cough"}


def _weights() -> dict[str, network.Array]:
    with (network.lists.FOLDER / "words_en.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def test_the_collector_runs_again_behind_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "_SHORT", 10)
    assert gc.isenabled()
    assess("a long text about a cough")
    assert gc.isenabled()
    assert assess("a text that takes 1" + "2" * 600).quarantined
    assert gc.isenabled()
