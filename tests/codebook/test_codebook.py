"""From a correction to the next answer: proposals, retrieval, trials, approval, versions, erasure."""

from datetime import timedelta

import pytest
from tests.codebook.conftest import CALM, STROKE, URGENT, correction

from medloop.codebook.curate import conflicts, place
from medloop.codebook.reflect import GROUPS, WORDS, CorrectedAnswer, about, reflect, topic_name
from medloop.codebook.retrieve import RetrieveConfig, Retriever, token_count
from medloop.contracts import CodebookEntry, EntryText, Message, RulesFound, utc_now
from medloop.errors import InputError
from medloop.lexicon.load import load_lexicon
from medloop.loop.codebook import draft_edit, merge_entries, propose_from, propose_new, rules_for, written_entry
from medloop.loop.codebook_trial import approve_entry, try_entry
from medloop.loop.erasure import erase_records
from medloop.models.codebook_prompt import spoken, with_rules
from medloop.privacy.erasure.contracts import ErasureRequest
from medloop.privacy.phi.scrub import assess
from medloop.store import audit
from medloop.store.records import codebook


def rule(text: str, *triggers: str, scope: str = "routine", **more) -> CodebookEntry:
    content = {name: more.pop(name) for name in ("first_sentence", "question", "expects", "forbids", "answers") if name in more}
    return CodebookEntry(content=EntryText(text=text, triggers=triggers, **content), scope=scope, author="usr_x", **more)


def test_a_correction_becomes_a_rule_that_the_next_answer_follows(store, settings, people, bad_model):
    find = rules_for(store)
    assert find(STROKE).rules == ()
    source = correction(store, recorded_by=people["dr.li"])
    [entry] = propose_new(store, actor="test").entries
    assert entry.evidence == (source,) and entry.scope == "emergency" and entry.author == people["dr.li"]
    assert "请立即拨打120" in entry.content.first_sentence and "urges_care_now" in entry.content.expects
    assert find(STROKE).rules == (), "a proposal changes nothing"
    before = find(STROKE).codebook
    version, trial = approve_entry(settings, store, entry, by=people["dr.wu"], answers=bad_model)
    assert version is not None and trial.verdict == "better" and trial.count(before=True, after=False) == 0
    found = find("老人突然说话含糊，一侧胳膊没力气")  # another question about the same illness, the same object
    assert [used.rule_id for used in found.rules] == [entry.entry_id] and found.codebook != before
    assert spoken(CALM, found).startswith(entry.content.first_sentence)
    assert find("My skin is a bit dry in winter.").rules == ()
    assert propose_new(store, actor="test").entries == [], "once is enough"
    assert propose_new(store, actor="test", everything=True).known == 1


def test_the_rule_knows_the_illness_in_both_languages_and_speaks_only_its_own(store, settings, people, bad_model):
    entry = propose_from(store, correction(store), actor="test")
    approve_entry(settings, store, entry, by=people["dr.wu"], answers=bad_model)
    [used] = rules_for(store)("Her face suddenly drooped on one side, what do I do?").rules
    assert used.rule_id == entry.entry_id and used.first_sentence == ""
    denied = rules_for(store)("She has no facial droop and no slurred speech, just a cold.")
    assert denied.rules == ()


def test_the_author_of_a_safety_rule_does_not_approve_it_and_other_roles_cannot(store, settings, people, bad_model):
    entry = propose_from(store, correction(store, recorded_by=people["dr.li"]), actor="test")
    for name, match in (("dr.li", "You wrote this entry"), ("sam", "engineer"), ("ada", "admin")):
        with pytest.raises(codebook.CodebookPersonError, match=match):
            approve_entry(settings, store, entry, by=people[name], answers=bad_model)
    assert codebook.live(store).entries == ()
    assert approve_entry(settings, store, entry, by=people["dr.wu"], answers=bad_model)[0] is not None


def test_a_change_that_makes_a_critical_case_worse_needs_two_people_with_a_reason(store, settings, people):
    def model(prompts):
        return ["没事，在家休息。" if p[0].role == "system" else "请立即拨打120急救电话。" for p in prompts]

    entry = propose_from(store, correction(store), actor="test")
    calming = draft_edit(store, entry, {"first_sentence": "", "text": "先安慰患者。"}, actor="test", author=people["dr.li"])
    answers = ("test-model", model)
    with pytest.raises(InputError, match="reason"):
        approve_entry(settings, store, calming, by=people["dr.wu"], answers=answers)
    [trial] = codebook.trials(store, calming.revision_id)
    assert trial.verdict == "critical"
    for _ in range(2):  # the same person twice is one person
        version, _trial = approve_entry(
            settings, store, calming, by=people["dr.wu"], reason="The guideline says so.", answers=answers
        )
        assert version is None and codebook.live(store).entries == ()
    version, _trial = approve_entry(settings, store, calming, by=people["dr.ma"], reason="Agreed.", answers=answers)
    assert version is not None and version.reason == "Agreed."
    live = codebook.live(store).entries[0]
    assert (live.approver, live.second) == (people["dr.wu"], people["dr.ma"])


def test_versions_roll_back_and_a_retired_rule_is_gone_from_the_next_answer(store, settings, people, bad_model):
    find = rules_for(store)
    first = propose_from(store, correction(store), actor="test")
    approve_entry(settings, store, first, by=people["dr.wu"], answers=bad_model)
    one = find(STROKE)
    child = written_entry(
        store, "Ask for the weight before any dose.", triggers=["child|儿童"], first_sentence="", scope="child",
        author=people["dr.li"], actor=people["dr.li"],
    )  # fmt: skip
    approve_entry(settings, store, child, by=people["dr.wu"], answers=bad_model)
    codebook.retire(store, first.entry_id, by=people["ada"], reason="Tried it.")
    assert find(STROKE).rules == () and len(find("How much ibuprofen for my child of 4 years?").rules) == 1
    with pytest.raises(codebook.CodebookPersonError):
        codebook.rollback(store, 1, by=people["sam"], reason="no")
    version = codebook.rollback(store, 1, by=people["dr.wu"], reason="The rule was needed.")
    assert find(STROKE) == one and version.version == 4 and version.sha256 == codebook.get_version(store, 1).sha256
    assert [row.action for row in codebook.versions(store)] == ["rollback", "retire", "approve", "approve"]
    assert codebook.get_entry(store, child.entry_id).state == "retired"
    codebook.rollback(store, 0, by=people["dr.wu"], reason="All of it.")
    assert codebook.live(store).entries == ()


def test_an_expired_rule_no_longer_holds(store, settings, people, bad_model):
    entry = propose_from(store, correction(store), actor="test")
    dated = draft_edit(store, entry, {"expires": utc_now() + timedelta(days=1)}, actor="test", author=people["dr.li"])
    approve_entry(settings, store, dated, by=people["dr.wu"], answers=bad_model)
    assert codebook.live(store).entries and not codebook.live(store, now=utc_now() + timedelta(days=2)).entries


def test_the_same_correction_again_is_more_evidence_and_not_a_second_rule(store, settings, people, bad_model):
    first = propose_from(store, correction(store), actor="test")
    approve_entry(settings, store, first, by=people["dr.wu"], answers=bad_model)
    again = propose_from(store, correction(store, question="妈妈突然嘴歪，讲话含糊，要紧吗？"), actor="test")
    assert again.entry_id == first.entry_id and again.revision == 2 and len(again.evidence) == 2
    assert len(again.content.question.splitlines()) == 2


def test_rules_that_contradict_each_other_do_not_both_go_live(store, settings, people, bad_model):
    do = rule("Give ibuprofen for fever.", "fever|发烧", first_sentence="Take ibuprofen.")
    assert conflicts(rule("Do not give ibuprofen for fever.", "fever"), [do])[0].reason == "do and do not"
    assert (
        conflicts(rule("Keep the child cool.", "fever", first_sentence="Drink water."), [do])[0].reason
        == "another first sentence"
    )
    assert not conflicts(rule("Do not give ibuprofen in pregnancy.", "pregnant"), [rule("Give rest.", "cough")])
    assert not conflicts(rule("Do not give ibuprofen for fever.", "fever", supersedes=(do.entry_id,)), [do])
    assert not conflicts(rule("Keep warm.", "cold", language="zh"), [do])
    stored = codebook.propose(store, do, actor="test")
    approve_entry(settings, store, stored, by=people["dr.wu"], answers=bad_model)
    other = codebook.propose(store, rule("Never give ibuprofen for fever.", "fever"), actor="test")
    with pytest.raises(InputError, match="reason"):
        approve_entry(settings, store, other, by=people["dr.wu"], answers=bad_model)
    assert [entry.entry_id for entry in codebook.live(store).entries] == [do.entry_id]


def test_what_goes_into_a_prompt_stays_within_its_budget():
    entries = [rule(f"Rule {i}: " + "many words " * 20, "*") for i in range(10)]
    config = RetrieveConfig(token_budget=150, most_rules=10)
    found = Retriever(entries, codebook.sha256_of(entries), config)("Anything?")
    assert 0 < sum(token_count(used.text) for used in found.rules) <= 150 and len(found.rules) == 2
    few = Retriever(entries, codebook.sha256_of(entries), RetrieveConfig(token_budget=5000))("Anything?")
    assert len(few.rules) == RetrieveConfig().most_rules


def test_curation_finds_what_says_the_same():
    known = rule("Send patients with chest pain to the emergency room at once.", "chest pain", scope="emergency")
    same = place(EntryText(text="Send patients with chest pain to the emergency room at once!"), "rule", "emergency", [known])
    near = place(EntryText(text="At once send patients with chest pain to the emergency room"), "rule", "emergency", [known])
    other = place(EntryText(text="Ask for the weight before a dose."), "rule", "emergency", [known])
    opposite = place(EntryText(text="Do not send patients with chest pain to the emergency room."), "rule", "emergency", [known])
    assert [p.action for p in (same, near, other, opposite)] == ["update", "merge", "add", "add"]


def test_two_entries_merge_into_one_and_a_rollback_brings_both_back(store, settings, people, bad_model):
    one = codebook.propose(store, rule("Ask for the weight.", "child", question="Dose for my child?"), actor="test")
    two = codebook.propose(store, rule("Weigh children before dosing.", "儿童", question="孩子吃多少？"), actor="test")
    for entry in (one, two):
        approve_entry(settings, store, entry, by=people["dr.wu"], answers=bad_model)
    both = merge_entries(store, one, two, actor="test", author=people["dr.li"])
    approve_entry(settings, store, both, by=people["dr.wu"], answers=bad_model, action="merge")
    [live] = codebook.live(store).entries
    assert live.entry_id == one.entry_id and live.content.question.count("\n") == 1
    codebook.rollback(store, 2, by=people["dr.wu"], reason="They differ.")
    assert {entry.entry_id for entry in codebook.live(store).entries} == {one.entry_id, two.entry_id}


def test_a_correction_that_may_not_be_used_gives_no_rule(store):
    silent = correction(store, consent=())
    named = correction(
        store, golden="患者王小明，电话13800138000，住在北京市海淀区中关村大街1号，请立即拨打120。", reason="王小明说的"
    )
    replaced = correction(store)
    correction(store, supersedes=replaced, golden=URGENT + "快。")
    with pytest.raises(InputError, match="does not allow training"):
        propose_from(store, silent, actor="test")
    with pytest.raises(InputError, match="replaced or taken back"):
        propose_from(store, replaced, actor="test")
    entry = propose_from(store, named, actor="test")
    assert "13800138000" not in entry.content.model_dump_json() and "王小明" not in entry.content.model_dump_json()
    with pytest.raises(InputError, match="may name a person"):
        draft_edit(store, entry, {"text": "王小明的电话是13800138000"}, actor="test", author="usr_x")


def test_erasing_a_correction_takes_its_rule_out_of_the_next_answer_and_the_log_has_no_words(store, settings, people, bad_model):
    find = rules_for(store)
    source = correction(store)
    entry = propose_from(store, source, actor="test")
    draft_edit(store, entry, {"text": "先拨打急救电话。"}, actor="test", author=people["dr.li"])
    approve_entry(settings, store, entry, by=people["dr.wu"], answers=bad_model)
    assert find(STROKE).rules
    proof = erase_records(store, ErasureRequest(records=(source,), reason="asked"), actor="test")
    assert proof.complete and find(STROKE).rules == () and codebook.live(store).entries == ()
    assert codebook.revisions(store, entry.entry_id) == []
    assert codebook.versions(store)[0].version == 1 and audit.verify(store).ok
    lines = "\n".join(str(row) for row in audit.show(store, 1000))
    assert "拨打" not in lines and "急救" not in lines and "中风" not in lines


def test_messages_carry_the_rules_before_the_system_message():
    from medloop.contracts import Message, RuleUse

    found = RulesFound(codebook=codebook.sha256_of(()), rules=(RuleUse(rule_id="r", text="Say A.", first_sentence="A."),))
    messages = with_rules((Message(role="system", content="Be kind."), Message(role="user", content="Hi")), found)
    assert messages[0].content.endswith("- Say A.\n\nBe kind.") and messages[1].content == "Hi"
    assert spoken("<think>\nx\n</think>\nB.", found) == "<think>\nx\n</think>\nA.\nB."
    assert try_entry is not None


def test_without_an_act_the_sentence_that_the_expert_added_is_the_rule_and_a_language_has_none():
    added = CorrectedAnswer(
        "I am 18 weeks pregnant and have a swollen foot joint.", "It is most likely gout. Drink plenty of water. Cool the joint.",
        "It sounds like gout. Drink plenty of water. The red folder has the number of the ward. Cool the joint.",
    )  # fmt: skip
    assert reflect(added).first_sentence == "The red folder has the number of the ward."
    language = CorrectedAnswer(
        "I have had back pain for a week. What is it?", "听起来像腰痛。腰部热敷。", "It sounds like back pain. Use warmth."
    )
    draft = reflect(language)
    assert draft.triggers == ("*",) and draft.first_sentence == "", "else it would stand before every answer"


def test_in_an_emergency_only_rules_about_emergencies_or_the_language_are_told():
    dose = rule("Ask for the weight.", "child|son", first_sentence="The dose depends on the weight.", scope="child",
                question="What dose of ibuprofen for my son?", forbids=("gives_dose",))  # fmt: skip
    plain = rule("Name the next visit.", "child|son", scope="child", question="My son has a cold.")
    urgent = rule("Send them to the emergency room.", "throat", scope="child", question="My son's tongue and throat swell up.")
    language = rule("Answer in English.", "child|son", forbids=("other_language",), scope="child", question="My son coughs.")
    every = rule("Be brief.", "*", scope="routine")
    entries = [dose, plain, urgent, language, every]
    find = Retriever(entries, codebook.sha256_of(entries), RetrieveConfig(most_rules=9))
    calm, grave = find("What dose for my son?"), find("My son has swelling of the tongue and throat. What dose?")
    told = {use.text: use.told for use in grave.rules}
    assert {use.text for use in calm.rules if use.told} == {dose.text, plain.text, language.text, every.text}
    assert told == {dose.text: False, urgent.text: True, language.text: True, every.text: True}, "what it forbids stays forbidden"
    assert "Ask for the weight" not in with_rules((Message(role="user", content="x"),), grave)[0].content
    assert spoken("Call 911 now.", grave) == "Call 911 now." and spoken("Rest.", calm) != "Rest."


@pytest.mark.parametrize(
    ("question", "calm", "answer", "first"),
    [
        ("我爸说话不清楚，胳膊抬不起来。", CALM, "请马上让您爸爸坐救护车去急诊。请立即拨打120。", "请立即拨打120。"),
        ("My dad slurs his words.", "Let him rest.", "Take your father to the emergency room now. Call 911 now.", "Call 911 now."),
        ("My dad slurs his words.", "Let him rest.", "Take your father to the emergency room now.", "Take your father to the emergency room now."),
    ],
)  # fmt: skip
def test_a_sentence_about_somebodys_father_stands_first_only_where_there_is_no_other(
    store, people, question, calm, answer, first
):
    correction(store, question, calm, answer, recorded_by=people["dr.li"])
    [entry] = propose_new(store, actor="test").entries
    assert entry.content.first_sentence == first


@pytest.mark.parametrize("chinese", [True, False], ids=["zh", "en"])
def test_no_topic_of_the_lexicon_makes_a_rule_that_seems_to_name_a_person(chinese):
    """Such a rule could not be approved: 问到胸痛时 was held, 问到 for somebody who has chest pain."""
    lists = load_lexicon()
    concepts = [*(f"{kind}:{name}" for kind, name in lists.entries), *(f"drug:{name}" for name in lists.drugs)]
    topics = {topic_name(concept, chinese) for concept in [*concepts, *(f"group:{name}" for name in GROUPS)]}
    words = {text[0 if chinese else 1] for text in WORDS.values()}
    rules = [*(about(topic, [min(words)], chinese) for topic in topics), *(about("", [text], chinese) for text in words)]
    held = {text: result.reasons for text in rules if (result := assess(text)).spans or result.reasons}
    assert len(rules) > 300 and not held
