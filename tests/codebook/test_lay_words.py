"""Triggers in everyday words: what lay people say is reached, what only sounds like it is not, and the approver sees it."""

import pytest
from tests.codebook.conftest import correction
from tests.codebook.test_codebook import rule

from medloop.codebook.curate import merged
from medloop.codebook.lay_words import lay_topics, topics_of
from medloop.codebook.retrieve import Retriever, has_words
from medloop.codebook.similar import concepts
from medloop.contracts import CodebookTrial, EntryText, TrialCase
from medloop.loop.codebook import propose_from
from medloop.loop.codebook_trial import approve_entry, try_entry
from medloop.store.records import codebook

SHA = codebook.sha256_of(())


@pytest.mark.parametrize(
    ("topic", "question"),
    [
        ("stroke", "老李刚才舌头捋不直，筷子也拿不住"),
        ("stroke", "Her mouth is pulled to one side and the words come out garbled"),
        ("child", "外孙女感冒了"),
        ("child", "My daughter is 9"),
        ("dose", "止疼片吃半片还是一片？"),
        ("dose", "Is half a tablet of paracetamol right for him?"),
        ("stopping", "降压药我想先歇一个月"),
        ("stopping", "Can I leave the tablets off, do I still need them?"),
        ("pregnancy", "怀着宝宝六个月，咳嗽"),
        ("pregnancy", "I'm expecting my first baby and have a cold"),
    ],
)
def test_everyday_words_are_reached(topic: str, question: str):
    assert topic in lay_topics(question).said


@pytest.mark.parametrize(
    ("topic", "question"),
    [
        ("stroke", "嘴角起皮涂什么"),
        ("stroke", "说话有点含糊，要不要练习？"),
        ("stroke", "面瘫后遗症三年，嘴歪，说话不清，还能治吗？"),
        ("stroke", "他没有嘴歪，也没有说话不清，就是咳嗽"),
        ("dose", "How much sleep does my son need?"),
        ("stopping", "医院诊断是胃炎，吃什么药？"),
        ("stopping", "I want to quit smoking"),
        ("pregnancy", "月经推迟，我是不是怀孕了？"),
        ("child", "我儿子今年30岁，胃疼"),
    ],
)
def test_what_only_sounds_like_it_is_not_reached(topic: str, question: str):
    assert topic not in lay_topics(question).said


def test_a_topic_that_is_only_asked_about_silences_its_trigger():
    assert has_words("我怀孕9周了", "怀孕|pregnancy|≈pregnancy") and not has_words("我会不会怀孕？", "怀孕|pregnancy|≈pregnancy")
    assert has_words("我会不会怀孕？", "怀孕|pregnancy"), "a person who leaves the topic out has the plain words"
    assert has_words("一次的剂量是多少", "剂量|dose") and not has_words("孩子发烧，吃药就退", "剂量|dose")
    assert "act:stop_verb" not in concepts("不停地打喷嚏，吃药不见效。") and "act:stop_verb" in concepts("能停药吗？")


def test_the_proposal_reaches_everyday_words_and_says_so(store):
    entry = propose_from(store, correction(store), actor="test")
    assert [topic.id for topic in topics_of(entry.content.triggers)] == ["stroke"] and topics_of(("a|b",)) == []
    find = Retriever([entry], SHA)
    assert find("婆婆刚才舌头捋不直，一边手脚不听使唤").rules[0].first_sentence and not find("我咳嗽两天了").rules


def test_the_sentence_that_more_experts_said_stands_first():
    def draft(sentence: str, question: str, answer: str) -> EntryText:
        return EntryText(text="x", triggers=("t",), first_sentence=sentence, question=question, answers=(answer,))

    by_chance = draft("See a doctor for the first attack.", "q1", "Do not stop it. See a doctor for the first attack.")
    both = merged(by_chance, draft("Do not stop it.", "q2", "Do not stop it. Rest."))
    assert both.first_sentence == "Do not stop it."
    assert merged(both, draft("Rest well.", "q3", "Rest well.")).first_sentence == "Do not stop it."


def test_a_rule_that_lowers_ordinary_answers_is_shown_as_such_and_needs_a_reason(store, settings, people):
    entry = codebook.propose(store, rule("Be short.", "*"), actor="test")
    long = "You have a cold. Rest, drink water and take honey for the cough. See a doctor if the fever lasts three days."

    def answers(prompts):
        return ["Rest now please." if prompt[0].role == "system" else f"{long} {prompt[-1].content}" for prompt in prompts]

    with pytest.raises(codebook.CodebookRefusedError, match="ordinary answers get worse"):
        approve_entry(settings, store, entry, by=people["dr.wu"], answers=("test", answers))
    [trial] = codebook.trials(store, entry.revision_id)
    assert trial.lowers_quality and trial.ordinary >= 3 and trial.quality_change < -0.02
    version, _ = approve_entry(settings, store, entry, by=people["dr.wu"], answers=("test", answers), reason="Wanted.")
    assert version is not None or trial.verdict in ("worse", "critical")
    harmless = codebook.propose(store, rule("Be kind.", "cold"), actor="test")
    same = try_entry(settings, store, harmless, actor="test", answers=("test", lambda prompts: [long] * len(prompts)))
    assert not same.lowers_quality


def test_a_loss_on_two_questions_is_no_loss_of_quality():
    def trial(n: int, after: float = 0.2) -> CodebookTrial:
        one = TrialCase(case_id="c", source="triage", critical=False, before=True, after=True, quality=(0.5, after))
        return CodebookTrial(revision_id="r", codebook=SHA, model="m", verdict="same", cases=(one,) * n)

    assert trial(3).lowers_quality and not trial(2).lowers_quality and not trial(0).lowers_quality
    assert not trial(3, after=0.46).lowers_quality and trial(3, after=0.44).lowers_quality, "a tenth of what it was"
