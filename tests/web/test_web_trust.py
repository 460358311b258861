"""The page of the trust meter: verdicts, intervals as bars, one judge by slice; for engineers, auditors and admins."""

import pytest

from medloop.contracts.evaluation import Interval
from medloop.contracts.validity import DriftRecord, JudgeTrust, ReadVerdicts, Validity, ValidityCard, WrongCase, judge_name
from medloop.feedback.insight.alerts import make_alert, write_standing
from medloop.loop.judge_drift import write_record
from medloop.loop.trust import CARD, card_folder
from medloop.reward.mix import MixConfig
from medloop.store.files.atomic import atomic_write
from medloop.teacher.verdict import RUBRIC_PARTS

ZH = {"Accept-Language": "zh"}


@pytest.fixture
def card(settings) -> ValidityCard:
    def row(judge: str, quantity: str, where: str, mean: float) -> Validity:
        value = Interval(mean=mean, low=mean - 0.1, high=mean + 0.1, n=40)
        return Validity(judge=judge, quantity=quantity, slice=where, value=value)

    card = ValidityCard(
        reward_version="1+abc", cases="sha256:" + "0" * 64, n_cases=80, bounds={"recall": 0.6, "precision": 0.6, "agreement": 0.5},
        judges=tuple(
            JudgeTrust(judge=judge, version="2", verdict=verdict, reason="measured")
            for judge, verdict in (("reward", "untrusted"), ("risk", "trusted"), ("chain", "unmeasured"))
        ),
        measures=(
            row("reward", "agreement", "all", 0.45), row("risk", "recall", "all", 0.8), row("risk", "recall", "language=zh", 0.3),
        ),
        read=(
            ReadVerdicts(judge="risk", version="1", right=16, arguable=2, read=40, reader="blind"),
            ReadVerdicts(judge="risk", version="2", right=18, arguable=1, read=19, reader="blind"),
            ReadVerdicts(judge="chain", version="1", right=3, arguable=0, read=4, reader="author"),
        ),
        wrong=(
            WrongCase(judge="risk", case="wrong-7", source="ward", mistake="recall"),
            WrongCase(judge="risk", case="bundled/2", source="bundled: faults", mistake="recall"),
            WrongCase(judge="risk", case="bundled/1", source="ward", mistake="recall"),
            WrongCase(judge="reward", case="wrong-8", source="ward", mistake="agreement"),
        ),
    )  # fmt: skip
    atomic_write(card_folder(settings, card.reward_version) / CARD, card.model_dump_json())
    return card


def test_the_trust_page_shows_verdicts_intervals_and_one_judge_by_slice(card, browse):
    page = browse("auditor").get("/web/trust").text
    assert page.index("untrusted</strong>") < page.index("<svg") and page.count("<svg") == 2 and "not measured" in page
    assert '<td class="number">0.45</td><td class="number">0.35</td><td class="number">0.55</td>' in page
    assert browse("engineer").get("/web/trust?version=zz").status_code == 404
    one = browse("engineer").get("/web/trust?version=1%2Babc&judge=risk").text
    assert one.count("<svg") == 1 and ">Chinese<" in one and ">0.30<" in one
    zh = browse("admin").get("/web/trust", headers=ZH).text
    assert "不可信" in zh and "训练会拒绝该奖励，因为人工标注不支持以下评判项：总奖励。" in zh
    assert "Training refuses this reward, because people&#39;s labels do not support: whole reward." in page
    assert "18 of 19 clearly right, 1 arguable</td><td>a language model that knew no rules</td><td>this version" in page
    assert "an earlier version" in page and "4 条中 3 条明确正确" in zh and "clearly right" not in one
    assert page.index("18 of 19") < page.index("<summary>Earlier readings") < page.index("16 of 40")
    assert "wrong-7" in one and "people saw it, the judge did not" in one and "wrong-8" not in one
    assert "He probably slept on that arm." in one and "<summary>Question and answer</summary>" in one
    assert "Call an ambulance right now and note" not in one, "a clinic's own case of the same id is not that of the package"
    assert "keeps no text of a clinic" in one and "medloop inspect" in one


def test_the_trust_page_names_drift_bundled_cases_and_what_was_left_out_in_both_languages(card, browse, settings):
    alert = make_alert("judge", "judge_shift", judge="risk", quantity="firing", before=0.1, after=0.4, n=90, reward="1+abc")
    write_standing(settings.workspace, [alert])
    changed = card.model_copy(update={"bundled": True, "left_out": {"no_consent": 3}, "sources": {"use: votes": 80}})
    atomic_write(card_folder(settings, card.reward_version) / CARD, changed.model_dump_json())
    page, zh = browse("auditor").get("/web/trust").text, browse("auditor").get("/web/trust", headers=ZH).text
    assert (
        "share with an objection 0.10 → 0.40" in page
        and "3 records without consent" in page
        and "say nothing about patients" in page
    )
    assert (
        "报出问题的比例由 0.10 变为 0.40" in zh and "未同意用于评估的记录" in zh and "比较投票" in zh and "仅用内置案例测量" in zh
    )
    assert "the judge “risky advice” treats recent exchanges differently" in browse("engineer").get("/web/dashboard").text
    home = browse("engineer").get("/web/").text
    assert '<a href="/web/trust?version=1%2Babc"><strong><span aria-hidden="true">⚠ </span>Alerts about drift' in home
    assert "奖励评判漂移提醒：1 条" in browse("admin").get("/web/", headers=ZH).text
    assert "drift" not in browse("clinician").get("/web/").text


def test_the_trust_page_says_when_drift_was_looked_for(card, browse, settings):
    assert "Nobody has looked for drift since this card" in browse("auditor").get("/web/trust").text
    write_record(settings, "1+abc", DriftRecord(exchanges=500))
    assert "Exchanges read: 500." in browse("auditor").get("/web/trust").text
    write_record(settings, "1+abc", DriftRecord(problem="changed"))
    assert "奖励的组成已经改变" in browse("auditor").get("/web/trust", headers=ZH).text


def test_the_trust_page_says_how_to_make_a_card_and_is_closed_to_raters(browse):
    assert "medloop reward validate CASES" in browse("engineer").get("/web/trust").text
    assert browse("clinician").get("/web/trust").status_code == 403


def test_every_judge_has_the_same_name_in_verdicts_and_alerts_in_both_languages(settings, browse, card):
    names = [*MixConfig().parts, *(f"teacher.{part}" for part in RUBRIC_PARTS), "rel", "faith", "conc", "harm"]
    judges = tuple(JudgeTrust(judge=name, version="2", verdict="unmeasured", reason="none") for name in names)
    atomic_write(card_folder(settings, card.reward_version) / CARD, card.model_copy(update={"judges": judges}).model_dump_json())
    shift = {"quantity": "firing", "before": 0.1, "after": 0.4, "n": 90, "reward": "1+abc"}
    write_standing(settings.workspace, [make_alert("judge", "judge_shift", judge=name, **shift) for name in names])
    zh, en = browse("engineer").get("/web/trust", headers=ZH).text, browse("engineer").get("/web/trust").text
    assert not [name for name in names if f">{name}<" in zh or f"“{name}”" in zh]
    for name in names:
        assert f">{judge_name(name)}</a>" in en and f"The judge “{judge_name(name)}” treats" in en
        assert f">{judge_name(name, 'zh')}</a>" in zh and f"评判项“{judge_name(name, 'zh')}”对近期对话" in zh
