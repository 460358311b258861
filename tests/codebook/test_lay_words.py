"""Triggers in everyday words: what lay people say is reached, what only sounds like it is not, and the approver sees it."""

from dataclasses import replace

import pytest
from tests.codebook.conftest import correction
from tests.codebook.test_codebook import rule

from medloop.codebook.curate import merged
from medloop.codebook.lay_words import lay_topics, topics_of
from medloop.codebook.retrieve import Retriever, has_words
from medloop.codebook.similar import concepts
from medloop.codebook.trial import RegressionCase
from medloop.contracts import CodebookTrial, EntryText, TrialCase
from medloop.loop.codebook import propose_from
from medloop.loop.codebook_trial import approve_entry, trial_version, try_entry
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
        ("stroke", "我爸去年中风过，刚才突然又嘴歪说话不清右手抬不起来"),
        ("stroke", "I had a stroke years ago. This morning suddenly my face drooped and I can't speak"),
        ("pregnancy", "怀着宝宝六个月，之前流产过一次，能吃布洛芬吗"),
        ("pregnancy", "I am 30 weeks pregnant, had a miscarriage before, can I take ibuprofen"),
        ("child", "My daughter is 34, her son is 6"),
        ("child", "My girl is 18 months old"),
        ("child", "My son is 18 kg"),
        ("child", "My dog bit my 5 yo"),
        ("stopping", "I quit smoking, can I stop metformin?"),
        ("stopping", "Can I stop my cough syrup?"),
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
        ("stroke", "手机掉了，刚才很伤心"),
        ("stroke", "说话不清楚：电话里刚才信号不好"),
        ("stroke", "My back hurts when I walk, my hand was heavy and my foot numb after the gym this morning"),
        ("child", "My daughter is 34 and asks about my blood pressure, I am 80"),
        ("child", "my girl is 45 with chest pain"),
        ("child", "my dog is 5 yo"),
        ("child", "老大不小了还长痘"),
        ("child", "孩子他爸今年87岁，儿子带他来的，血压高"),
        ("stopping", "I quit smoking, what medicine helps?"),
        ("stopping", "Which tablets help me stop coughing?"),
        ("stopping", "药片能止血吗，血停了"),
    ],
)
def test_what_only_sounds_like_it_is_not_reached(topic: str, question: str):
    assert topic not in lay_topics(question).said


def test_a_topic_that_is_only_asked_about_is_not_said_and_the_plain_words_hold():
    assert has_words("我怀孕9周了", "≈pregnancy") and not has_words("我会不会怀孕？", "≈pregnancy")
    assert has_words("我会不会怀孕？", "怀孕|pregnancy"), "a person who writes the plain words has them"
    assert has_words("一次的剂量是多少", "剂量|dose") and not has_words("孩子发烧，吃药就退", "剂量|dose")
    assert "act:stop_verb" not in concepts("不停地打喷嚏，吃药不见效。") and "act:stop_verb" in concepts("能停药吗？")


@pytest.mark.parametrize(
    ("words", "topic", "question"),
    [
        ("中风|stroke", "≈stroke", "面瘫后遗症三年，以前中风，现在嘴歪说话不清"),
        ("中风|stroke", "≈stroke", "我爸去年中风过，刚才突然又中风嘴歪说话不清右手抬不起来"),
        ("中风|stroke", "≈stroke", "I had a stroke years ago, after surgery"),
        ("怀孕|pregnancy", "≈pregnancy", "我会不会怀孕？"),
        ("怀孕|pregnancy", "≈pregnancy", "30 weeks pregnant, had a miscarriage before"),
        ("女儿|daughter", "≈child", "My daughter is 34"),
        ("戒烟|quit smoking", "≈stopping", "I quit smoking, what medicine helps?"),
    ],
)
def test_everyday_words_only_add_to_what_the_plain_words_reach(words: str, topic: str, question: str):
    assert has_words(question, words) and has_words(question, f"{words}|{topic}")


def test_the_approver_reads_what_a_topic_leaves_out_and_it_does():
    topics = topics_of(("≈stroke|≈child|≈dose|≈stopping|≈pregnancy",))
    assert [topic.id for topic in topics if topic.left_out] == ["stroke", "child", "stopping", "pregnancy"]
    for topic in topics:
        assert not [words for words in topic.left_out if topic.id in lay_topics(f"{words}，吃什么药").said]
        assert not [words for words in topic.left_out if has_words(words, f"≈{topic.id}")]


def test_the_hash_of_the_codebook_has_the_everyday_words_that_its_triggers_stand_for(monkeypatch):
    plain, lay = rule("Be kind.", "cold"), rule("Call.", "中风|≈stroke")
    before = codebook.sha256_of([plain]), codebook.sha256_of([plain, lay])
    monkeypatch.setattr(codebook, "lay_words_sha256", lambda: SHA)
    assert codebook.sha256_of([plain]) == before[0] and codebook.sha256_of([plain, lay]) != before[1]


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
    assert len(codebook.trials(store, entry.revision_id)) == 1, "nothing changed, so the trial counts"
    harmless = codebook.propose(store, rule("Be kind.", "cold"), actor="test")
    same = try_entry(settings, store, harmless, actor="test", answers=("test", lambda prompts: [long] * len(prompts)))
    assert not same.lowers_quality


def test_a_trial_of_other_readers_or_cases_is_run_again_before_an_approval(store, settings, people):
    entry = codebook.propose(store, rule("Be kind.", "cold"), actor="test")
    answers = ("test", lambda prompts: ["Rest."] * len(prompts))
    old = CodebookTrial(revision_id=entry.revision_id, codebook=SHA, model="test", verdict="same")
    codebook.save_trial(store, old)
    [kept] = codebook.trials(store, entry.revision_id)
    assert kept == old and old.codebook == codebook.live(store).sha256 and not old.version, "as before trials had a version"
    _, used = approve_entry(settings, store, entry, by=people["dr.wu"], answers=answers)
    assert used.trial_id != old.trial_id and used.version.startswith("sha256:") and used.unchanged
    assert codebook.trials(store, entry.revision_id)[0] == used
    case = RegressionCase("c", "triage", "q", False, bool)
    assert trial_version([case]) != trial_version([case, replace(case, case_id="d")])
    assert trial_version([case]) != trial_version([replace(case, quality=lambda answer: 1.0)])


def test_a_loss_on_two_questions_is_no_loss_of_quality():
    def trial(n: int, after: float = 0.2) -> CodebookTrial:
        one = TrialCase(case_id="c", source="triage", critical=False, before=True, after=True, quality=(0.5, after))
        return CodebookTrial(revision_id="r", codebook=SHA, model="m", verdict="same", cases=(one,) * n)

    assert trial(3).lowers_quality and not trial(2).lowers_quality and not trial(0).lowers_quality
    assert not trial(3, after=0.46).lowers_quality and trial(3, after=0.44).lowers_quality, "a tenth of what it was"
