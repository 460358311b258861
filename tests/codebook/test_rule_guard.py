"""Rules that are enforced: what a correction forbids is taken out of answers, sentence by sentence, streamed or not."""

from dataclasses import replace

import pytest
from tests.codebook.conftest import URGENT, correction
from tests.codebook.test_codebook import rule

from medloop.codebook.curate import merged, place
from medloop.codebook.reflect import CorrectedAnswer, reflect
from medloop.codebook.retrieve import Retriever
from medloop.contracts import Message, RulesFound, RuleUse
from medloop.errors import InputError
from medloop.loop.assistant import build_prompt
from medloop.loop.codebook import conflicts_of, draft_edit, propose_from, rules_for, written_entry
from medloop.loop.codebook_trial import approve_entry
from medloop.loop.rule_guard import as_shown, rule_guard
from medloop.models.codebook_prompt import with_rules
from medloop.reward.detect.acts import acts, is_about_medicine
from medloop.serve.gateway.guards import GuardedAnswer
from medloop.serve.gateway.notices import notices
from medloop.store.records import codebook

SHA = codebook.sha256_of(())
DOSE_ASK = "How much ibuprofen should I give my son of 4 years?"
DOSE_BAD = "It sounds like a cold. Give him ibuprofen 400 mg three times a day. Keep him warm."
DOSE_GOOD = "The dose of a child depends on the weight; ask a doctor or pharmacist first. It sounds like a cold. Keep him warm."


def corrected(question: str, original: str, golden: str) -> CorrectedAnswer:
    about = is_about_medicine(question)
    return CorrectedAnswer(question, original, golden, "", acts(original, about), acts(golden, about))


def test_what_was_wrong_with_an_answer_is_no_rule_but_what_the_detectors_read_is():
    asked = "How much ibuprofen can my 3-year-old have?"
    why = "The dose is dangerous for a child."
    seen = replace(corrected(asked, "Give 400 mg every 4 hours.", "Ask your pharmacist; the dose goes by weight."), reason=why)
    assert why not in reflect(seen).text and "Do not give a dose" in reflect(seen).text
    for reason in ("Ask for the weight first.", "嘴角流口水可能是中风，首先让患者立即拨打120。"):
        assert reflect(replace(seen, reason=reason)).text == reason
    for reason in ("It did not say when to call a doctor.", "没有先问体重。", "You should have asked."):
        assert reflect(replace(seen, reason=reason)).text != reason
    unseen = replace(corrected("Is green tea good?", "Yes.", "Yes, yes."), reason="Too short.")
    assert reflect(unseen).text == "Do not make this mistake: Too short."


def found(**values) -> RulesFound:
    return RulesFound(codebook=SHA, rules=(RuleUse(rule_id="rule_1", text="x", **values),))


def test_a_model_that_repeats_its_mistake_is_corrected_all_the_same(store, settings, people, bad_model):
    entry = propose_from(store, correction(store, original="别担心，没什么大事。在家休息。"), actor="test")
    assert {"reassures", "home_care"} <= set(entry.content.forbids) and entry.content.answers == (URGENT,)
    approve_entry(settings, store, entry, by=people["dr.wu"], answers=bad_model)
    rules = rules_for(store)("老人突然说话含糊，一侧胳膊没力气")
    shown = as_shown("别担心，没什么大事。可能是高血压。", "老人突然说话含糊，一侧胳膊没力气", rules)
    assert shown == f"{entry.content.first_sentence}\n可能是高血压。"
    ordinary = "我咳嗽两天了，怎么办？"
    assert as_shown("别担心，多喝水。", ordinary, rules_for(store)(ordinary)) == "别担心，多喝水。", "no rule, no change"


def test_only_what_the_expert_took_out_is_forbidden():
    assert reflect(corrected(DOSE_ASK, DOSE_BAD, DOSE_GOOD)).forbids == ("gives_dose",)
    stop = reflect(
        corrected(
            "Can I stop taking metoprolol?", "You can stop the tablets now.", "Do not stop your medicine; ask your doctor first."
        )
    )
    assert stop.forbids == ("stops_medicine",) and stop.first_sentence.startswith("Do not stop")
    language = reflect(corrected("I sleep badly. Why?", "听起来像失眠。每天同一时间起床。", "It sounds like insomnia."))
    assert language.forbids == ("other_language",) and language.triggers == ("*",) and language.expects == ("same_language",)
    added = reflect(corrected("I cough.", "It sounds like a cold.", "It sounds like a cold. See a doctor in three days."))
    assert added.forbids == ()


def test_a_sentence_is_taken_out_in_pieces_as_in_whole_and_reasoning_stays():
    rules = found(forbids=("gives_dose",), first_sentence="Ask a pharmacist.")
    text = "<think>\nMaybe ibuprofen 400 mg.\n</think>\nIt is a cold. Give ibuprofen 400 mg three times a day. Keep warm."
    guard = rule_guard(rules, DOSE_ASK)
    whole, pieces = GuardedAnswer((guard,), DOSE_ASK), GuardedAnswer((rule_guard(rules, DOSE_ASK),), DOSE_ASK)
    shown = whole.feed(text) + whole.finish()
    assert "".join(pieces.feed(letter) for letter in text) + pieces.finish() == shown
    assert shown == "<think>\nMaybe ibuprofen 400 mg.\n</think>\nIt is a cold. Keep warm."
    assert [(act.guard, act.finding, act.rule) for act in whole.acts] == [("rule", "gives_dose", "rule_1")]
    joined = GuardedAnswer((rule_guard(rules, DOSE_ASK),), DOSE_ASK)
    assert joined.feed("<think>x</think>Give ibuprofen 400 mg daily. ") + joined.finish() == "<think>x</think> "


def test_where_nothing_is_left_vetted_words_stand_and_never_silence():
    bad = "Give ibuprofen 400 mg three times a day."
    assert as_shown(bad, DOSE_ASK, found(forbids=("gives_dose",))) == notices()["rule"][0]
    assert as_shown(bad, DOSE_ASK, found(forbids=("gives_dose",), first_sentence="Ask first.")) == "Ask first."
    whole = found(forbids=("gives_dose",), first_sentence="Ask first.", answer="Ask first. Keep him warm.")
    assert as_shown(bad, DOSE_ASK, whole) == "Ask first.\nKeep him warm."
    assert as_shown("听起来像感冒。多喝水。", DOSE_ASK, found(forbids=("other_language",))) == notices()["rule"][0]


def test_the_experts_answer_stands_only_for_nearly_its_own_question():
    draft = reflect(corrected("I have had back pain for a week. Is it bad?", "听起来像腰痛。", "It sounds like back pain."))
    find = Retriever(
        [rule(draft.text, *draft.triggers, question=draft.question, forbids=draft.forbids, answers=draft.answers)], SHA
    )
    assert find("I have had back pain for a week. Is it dangerous?").rules[0].answer == "It sounds like back pain."
    other = find("I have had a headache for a week and take warfarin. Is it bad?").rules[0]
    assert other.answer == "" and other.forbids == ("other_language",)
    assert find("我腰疼一周了，严重吗？").rules == (), "questions in another language were not corrected"


def test_corrections_of_one_mistake_are_one_rule_for_what_they_have_in_common():
    first = reflect(
        corrected("I am pregnant and have high blood pressure.", "Rest.", "Rest. Come back for a check in three days.")
    )
    second = reflect(corrected("I am pregnant and have asthma.", "Drink.", "Drink. Come back for a check in three days."))
    entry = rule(first.text, *first.triggers, question=first.question, first_sentence=first.first_sentence, answers=first.answers)
    assert place(second, "rule", "routine", [entry]).action == "merge"
    both = merged(entry.content, second)
    assert both.triggers == ("≈pregnancy",) and both.answers == (*first.answers, *second.answers)


def test_people_name_only_acts_that_detectors_know_and_no_rule_forbids_its_own_words(store, people):
    values = {"triggers": ["child"], "scope": "child", "author": people["dr.li"], "actor": people["dr.li"]}
    with pytest.raises(InputError):
        written_entry(store, "No doses.", first_sentence="", forbids=(".*",), **values)
    with pytest.raises(InputError, match="does what the rule forbids"):
        written_entry(store, "No doses.", first_sentence="Give ibuprofen 400 mg.", forbids=("gives_dose",), **values)
    entry = written_entry(store, "No doses.", first_sentence="", forbids=("gives_dose",), **values)
    revised = draft_edit(store, entry, {"forbids": ()}, actor="test", author=people["dr.li"])
    assert revised.content.forbids == () and revised.words_sha256 != entry.words_sha256


def test_a_rule_that_forbids_what_another_says_first_is_a_conflict(store, settings, people, bad_model):
    calm = codebook.propose(store, rule("Be kind.", "cold", first_sentence="Don't worry, it is harmless."), actor="test")
    approve_entry(settings, store, calm, by=people["dr.wu"], answers=bad_model)
    strict = codebook.propose(store, rule("Be earnest.", "cold", forbids=("reassures",)), actor="test")
    assert conflicts_of(store, strict) == [calm.entry_id]


def test_a_rule_that_takes_too_much_out_shows_as_worse_in_its_trial(store, settings, people):
    entry = codebook.propose(store, rule("No comfort.", "*", forbids=("reassures",), scope="emergency"), actor="test")
    kind = ("test", lambda prompts: ["别担心，没什么大事，但请立即拨打120送急诊。" for _ in prompts])
    with pytest.raises(InputError, match="reason"):
        approve_entry(settings, store, entry, by=people["dr.wu"], answers=kind)
    assert codebook.trials(store, entry.revision_id)[0].verdict == "critical"


PREGNANT = "I am 18 weeks pregnant and have a swollen foot joint."
MANY_NEW = "It sounds like gout. The joint is inflamed. Beer makes it worse. Wear wide shoes."


def test_only_a_sentence_that_the_expert_added_and_clearly_meant_stands_first():
    back = reflect(corrected(PREGNANT, "It sounds like gout. Avoid wine.", f"{MANY_NEW} Please come back in 48 hours."))
    assert back.first_sentence == "Please come back in 48 hours."
    chinese = reflect(
        corrected("我怀孕9周，大便干硬。", "听起来像便秘。多走动。", "听起来像便秘。多喝水。吃粗粮。请一周后复查。")
    )
    assert chinese.first_sentence == "请一周后复查。"
    unclear = reflect(corrected(PREGNANT, "Rest.", MANY_NEW))
    assert unclear.first_sentence == "" and "not clear" in unclear.text, "no guess"
    others = ["It sounds like eczema. Cut the nails. Wear wide shoes.", "Wear wide shoes. Rest the leg."]
    assert reflect(corrected(PREGNANT, "Rest.", MANY_NEW), others).first_sentence == "Wear wide shoes."
    known = reflect(corrected(PREGNANT, "Rest. Come back in 48 hours.", f"{MANY_NEW} Come back in 48 hours."))
    assert known.first_sentence == "", "the answer had it already"


def test_what_recurs_becomes_clear_with_the_next_correction(store):
    ask = "I am {} weeks pregnant and have {}."
    for weeks, ill, golden in (
        (18, "a swollen foot joint", "It sounds like gout. Avoid beer. Use the blue folder."),
        (20, "dry itchy skin", "It sounds like eczema. Cut the nails. Use the blue folder."),
        (21, "a swollen foot joint", "It sounds like gout. Eat no meat. Use the blue folder."),
    ):
        entry = propose_from(
            store, correction(store, prompt=ask.format(weeks, ill), original="Rest.", golden=golden), actor="test"
        )
    assert entry.content.first_sentence == "Use the blue folder." and len(entry.evidence) == 3


def test_a_rule_about_doses_or_language_is_about_nothing_else():
    ask = "我儿子4岁，痛得厉害。药该吃多少？"
    without = reflect(corrected(ask, "听起来像痛经。多休息。", "孩子的剂量要按体重，请先问医生或药师。听起来像痛经。"))
    assert without.triggers[0].startswith("儿童") and "剂量" in without.triggers[1], "also where the answer gave no dose"
    language = reflect(corrected("Should I take antibiotics for eczema?", "听起来像湿疹。", "It sounds like eczema."))
    assert language.text == "Answer in English.", "a small model follows a name"
    named = [
        rule(language.text, "*", forbids=("other_language",), language="en"),
        rule("用中文回答。", "*", forbids=("other_language",), language="zh"),
    ]
    find = Retriever(named, SHA)
    told = {
        ask: [use.text for use in find(ask).rules]
        for ask in ("Is ibuprofen safe for me?", "Can I take 布洛芬 with food?", "布洛芬能吃吗？", "我能吃 ibuprofen 吗？")
    }
    assert list(told.values()) == [["Answer in English."]] * 2 + [["用中文回答。"]] * 2


def test_a_sentence_that_is_put_first_anyway_is_not_asked_of_the_model():
    rules = found(first_sentence="Call 120.")
    said = rules.model_copy(
        update={"rules": (rules.rules[0].model_copy(update={"text": "About strokes: Say first: Call 120."}),)}
    )
    ask = (Message(role="user", content="q"),)
    assert with_rules(ask, said) == ask == build_prompt(ask, said, None)
    unsaid = said.model_copy(update={"rules": (said.rules[0].model_copy(update={"first_sentence": ""}),)})
    assert with_rules(ask, unsaid)[0].content == build_prompt(ask, unsaid, None)[0].content != "q"
    chinese = rule("问到怀孕时：先说明：请复诊。", "怀孕|pregnancy", first_sentence="请复诊。", language="zh")
    find = Retriever([chinese], SHA)
    assert find("我怀孕9周。").rules and not find("I am 18 weeks pregnant.").rules, "a sentence in another language"


def test_more_loss_than_gain_needs_two_people_and_an_unreadable_answer_is_a_loss(store, settings, people):
    entry = codebook.propose(store, rule("No comfort.", "*", forbids=("reassures",)), actor="test")
    kind = ("test", lambda prompts: ["Don't worry, it is harmless." for _ in prompts])
    version, trial = approve_entry(settings, store, entry, by=people["dr.wu"], answers=kind, reason="All agree.")
    assert trial.verdict == "worse" and version is None, "the notice alone is no answer to an ordinary question"
    version, _ = approve_entry(settings, store, entry, by=people["dr.ma"], answers=kind, reason="Agreed.")
    assert version is not None
