"""The gate's verdicts in the store: bound to bytes, signed by people, lifted for a while; and what a promotion needs."""

import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from sqlalchemy import text

from medloop.contracts import GateCheck, GateResult, Incident, sha256_id, utc_now
from medloop.errors import InputError, IntegrityError
from medloop.store import row_macs
from medloop.store.db import open_store
from medloop.store.records import codebook, crud, gates, lineage, registry, users

ARTIFACT = sha256_id("adapter")


def verdict(*checks: tuple[str, str], sign_offs: int = 0, artifact: str = ARTIFACT) -> GateResult:
    rows = tuple(GateCheck(name=name, outcome=outcome, reason=f"{name} was measured.") for name, outcome in checks)
    worst = next((o for o in ("fail", "not_enough_evidence") if any(row.outcome == o for row in rows)), "pass")
    return GateResult(
        artifact=artifact, weights=sha256_id("weights"), base=sha256_id("base"), baseline_artifact=sha256_id("before"), label="tiny+sft", baseline="tiny", report=sha256_id("report"),
        config=sha256_id("config"), outcome=worst, checks=rows, needs_sign_offs=sign_offs,
    )  # fmt: skip


@pytest.fixture
def people(store) -> dict[str, str]:
    roles = {"dr.li": "clinician", "dr.wu": "clinician", "sam": "engineer", "anna": "annotator"}
    return {name: users.add_user(store, name, role, password=None, actor="test").user_id for name, role in roles.items()}


def test_a_verdict_is_read_as_it_was_saved_and_only_its_bytes_may_be_promoted(store):
    assert "has not examined" in gates.promotion_refusal(store, ARTIFACT)
    result = verdict(("red_team", "pass"))
    gate = gates.save_gate(store, result, actor="test")
    assert gates.save_gate(store, result, actor="test") == gate, "twice is once"
    assert gates.latest_gate(store, ARTIFACT) == result and gates.get_gate(store, gate[7:19]) == result
    assert gates.promotion_refusal(store, ARTIFACT) is None
    assert "has not examined" in gates.promotion_refusal(store, sha256_id("other bytes"))
    gates.save_gate(store, verdict(("red_team", "fail")), actor="test")
    assert "'red_team' failed: red_team was measured." in gates.promotion_refusal(store, ARTIFACT), "the newest one counts"


def test_sign_offs_come_from_different_clinicians_and_a_refusal_stands(store, people):
    gate = gates.save_gate(store, verdict(("red_team", "pass"), sign_offs=2), actor="test")
    gates.sign(store, gate, by=people["dr.li"], approved=True)
    with pytest.raises(gates.GateDecidedError, match="You have signed this verdict already"):
        gates.sign(store, gate, by=people["dr.li"], approved=True)
    assert "1 of 2 sign-offs" in gates.promotion_refusal(store, ARTIFACT)
    with pytest.raises(gates.GatePersonError, match="engineer"):
        gates.sign(store, gate, by=people["sam"], approved=True)
    with pytest.raises(InputError, match="comment"):
        gates.sign(store, gate, by=people["dr.wu"], approved=False)
    gates.sign(store, gate, by=people["dr.wu"], approved=False, comment="Case 12 is wrong.")
    assert "A clinician refused this model" in gates.promotion_refusal(store, ARTIFACT)
    gates.sign(store, gate, by=people["dr.wu"], approved=True, comment="I misread it.")
    assert gates.promotion_refusal(store, ARTIFACT) is None and len(gates.sign_offs_of(store, gate)) == 3


def test_a_waiver_needs_a_second_person_and_an_expiry_and_stays_visible(store, people, monkeypatch):
    gates.save_gate(store, verdict(("red_team", "fail"), ("incidents", "fail"), ("language/zh", "pass")), actor="test")
    expires = utc_now() + timedelta(days=7)

    def ask(check: str, **changed):
        given = {"reason": "Two cases are labelled wrongly.", "author": people["dr.li"], "expires": expires, **changed}
        return gates.request_waiver(store, ARTIFACT, check=check, **given)

    wrong = [("incidents", {}, "cannot be waived"), ("language/zh", {}, "did not fail"), ("red_team", {"reason": " "}, "reason"),
             ("red_team", {"expires": utc_now()}, "expired"), ("red_team", {"author": people["anna"]}, "annotator")]  # fmt: skip
    for check, changed, problem in wrong:
        with pytest.raises(InputError, match=problem):
            ask(check, **changed)
    waiver = ask("red_team")
    assert "'red_team' failed" in gates.promotion_refusal(store, ARTIFACT), "it waits for a second person"
    for person, problem in (("dr.li", "somebody else"), ("sam", "engineer")):
        with pytest.raises(gates.GatePersonError, match=problem):
            gates.approve_waiver(store, waiver, by=people[person])
    gates.approve_waiver(store, waiver, by=people["dr.wu"])
    assert "'incidents' failed" in gates.promotion_refusal(store, ARTIFACT)
    gates.save_gate(store, verdict(("red_team", "fail")), actor="test")
    assert gates.promotion_refusal(store, ARTIFACT) is None
    monkeypatch.setattr(gates, "utc_now", lambda: expires)
    assert f"expired on {expires:%Y-%m-%d}" in gates.promotion_refusal(store, ARTIFACT)
    assert [row.waiver_id for row in gates.waivers_of(store, ARTIFACT)] == [waiver]


def test_a_refusal_outlives_another_run_of_the_gate(store, people):
    gate = gates.save_gate(store, verdict(("red_team", "pass"), sign_offs=1), actor="test")
    gates.sign(store, gate, by=people["dr.wu"], approved=False, comment="The answers about insulin are wrong.")
    again = gates.save_gate(store, verdict(("red_team", "pass"), ("more", "pass"), sign_offs=1), actor="test")
    gates.sign(store, again, by=people["dr.li"], approved=True)
    refusal = gates.promotion_refusal(store, ARTIFACT)
    assert "A clinician refused this model" in refusal and "insulin" not in refusal, "the comment stays out of the audit log"
    gates.sign(store, again, by=people["dr.wu"], approved=True)
    assert gates.promotion_refusal(store, ARTIFACT) is None


def test_a_waiver_lifts_what_it_was_given_for_and_is_signed_by_others(store, people):
    gate = gates.save_gate(store, verdict(("judges", "not_enough_evidence"), sign_offs=1), actor="test")
    with pytest.raises(gates.GateDecidedError, match=r"checks did not pass \(1\): judges\. Refuse to sign"):
        gates.sign(store, gate, by=people["dr.wu"], approved=True)

    def waive(days: int = 30, check: str = "judges", author: str = "dr.li") -> str:
        soon = utc_now() + timedelta(days=days)
        return gates.request_waiver(store, ARTIFACT, check=check, reason="Pilot.", author=people[author], expires=soon)

    with pytest.raises(InputError, match="at most 90 days"):
        waive(days=400)
    gates.approve_waiver(store, waive(), by=people["dr.wu"])
    assert "0 of 1 sign-offs" in gates.promotion_refusal(store, ARTIFACT)
    gates.sign(store, gate, by=people["dr.li"], approved=True)
    assert "0 of 1 sign-offs" in gates.promotion_refusal(store, ARTIFACT), "nobody signs for their own waiver"
    gates.sign(store, gate, by=people["dr.wu"], approved=True)
    assert gates.promotion_refusal(store, ARTIFACT) is None
    gates.save_gate(store, verdict(("judges", "fail"), ("critical_failures", "fail")), actor="test")
    assert "'judges' failed" in gates.promotion_refusal(store, ARTIFACT), "want of evidence was waived, not a failure"
    with pytest.raises(InputError, match="cannot be waived"):
        waive(check="critical_failures")


def test_a_comment_is_kept_without_identifiers(store, people):
    gate = gates.save_gate(store, verdict(("red_team", "pass")), actor="test")
    gates.sign(store, gate, by=people["dr.li"], approved=True, comment="Read them all. Mrs. Margaret Thompson, 13812345678.")
    [sign_off] = gates.sign_offs_of(store, gate)
    assert sign_off.comment.startswith("Read them all.")
    assert "Thompson" not in sign_off.comment and "13812345678" not in sign_off.comment


def test_a_comment_that_may_name_somebody_is_refused(store, people):
    gate = gates.save_gate(store, verdict(("red_team", "pass")), actor="test")
    with pytest.raises(InputError, match="may name a person"):
        gates.sign(store, gate, by=people["dr.li"], approved=True, comment="孩子名叫甘草，发烧")
    assert gates.sign_offs_of(store, gate) == []
    with pytest.raises(InputError, match="may name a person"):
        codebook.checked_reason("孩子名叫甘草，发烧")
    assert codebook.checked_reason("Mrs. Margaret  Thompson asked") == "[NAME_1] asked"


def test_weights_that_an_erasure_touched_are_known_in_any_folder(store):
    gates.save_gate(store, verdict(("red_team", "pass")), actor="test")
    with store.write() as conn:
        lineage.flag_artifact(conn, sha256_id("weights"), "tainted", "trained on erased data", actor="test")
    assert "tainted by an erasure" in gates.promotion_refusal(store, ARTIFACT)


def test_an_open_incident_and_an_erasure_forbid_a_promotion_whatever_the_gate_said(store):
    gates.save_gate(store, verdict(("red_team", "pass")), actor="test")
    crud.add(store, [Incident(record_id="fb_1", opened_by="usr_1")], actor="test")
    assert "open safety incidents (1)" in gates.promotion_refusal(store, ARTIFACT)
    gates.save_gate(store, verdict(("text", "not_enough_evidence"), ("red_team", "fail")), actor="test")
    assert gates.promotion_refusal(store, ARTIFACT).startswith(
        "2 checks of the gate did not pass: red_team, text. The gate's check 'red_team' failed: red_team was measured. There are open"
    )
    with store.write() as conn:
        lineage.flag_artifact(conn, ARTIFACT, "tainted", "trained on data erased in er_1", actor="test")
    assert "tainted by an erasure (trained on data erased in er_1)" in gates.promotion_refusal(store, ARTIFACT)


def test_a_refusal_names_three_checks_and_where_all_are_and_only_counts_them_below_the_table(store):
    result = verdict(*((f"metric/{n}", "fail") for n in range(5)))
    gate = gates.save_gate(store, result, actor="test")[7:19]
    assert gates.promotion_refusal(store, ARTIFACT) == (
        "5 checks of the gate did not pass: metric/0, metric/1, metric/2, …. "
        f"All of them: medloop gate show {gate}. The gate's check 'metric/0' failed: metric/0 was measured."
    )
    assert gates.refusal_below_checks(store, result) == "Not allowed: checks that did not pass: 5, see above."
    gates.save_gate(store, verdict(("red_team", "fail")), actor="test")
    assert "'red_team' failed" in str(gates.refusal_below_checks(store, result)), "another verdict counts now"


@pytest.mark.parametrize(
    "edit",
    ["UPDATE gate_results SET outcome = 'pass', checks = '[]'", "DELETE FROM gate_sign_offs",
     "UPDATE gate_results SET needs_sign_offs = 0"],
)  # fmt: skip
def test_a_verdict_or_a_refusal_that_was_edited_past_medloop_promotes_nothing(store, people, edit):
    gate = gates.save_gate(store, verdict(("red_team", "pass"), sign_offs=1), actor="test")
    gates.sign(store, gate, by=people["dr.li"], approved=False, comment="No.")
    with store.engine.begin() as conn:
        conn.exec_driver_sql("PRAGMA query_only=OFF") if store.is_sqlite else None
        conn.execute(text(edit))
    with pytest.raises(IntegrityError, match="past medloop"):
        gates.promotion_refusal(store, ARTIFACT)
    with store.read() as conn:
        assert row_macs.check_rows(store, conn).wrong == 1


def test_bytes_that_served_before_and_have_no_verdict_are_refused_in_a_sentence(store):
    """A rollback asks this for every earlier version, when something is wrong and somebody is in a hurry."""
    assert "has not examined a model with these bytes" in registry.reuse_refusal(store, ARTIFACT)


KILLED = """
import os, signal, sys
from pathlib import Path
from medloop.contracts import GateResult
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import open_store
from medloop.store.records import gates
die = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
setattr(audit, sys.argv[1], die)
with open_store(Settings(home=Path(sys.argv[2]))) as store:
    gates.save_gate(store, GateResult.from_json(sys.stdin.read()), actor="test")
"""


@pytest.mark.parametrize("moment", ["append", "sign_head"])
def test_a_gate_that_is_killed_before_its_verdict_is_stored_leaves_none(sqlite_settings, moment):
    result = verdict(("red_team", "pass"))
    words = [sys.executable, "-c", KILLED, moment, str(sqlite_settings.home)]
    done = subprocess.run(words, input=result.canonical_json(), text=True, check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with open_store(sqlite_settings) as store:
        assert gates.list_gates(store) == [] and "has not examined" in gates.promotion_refusal(store, ARTIFACT)
        gates.save_gate(store, result, actor="test")
        assert gates.list_gates(store) == [result]
        with store.read() as conn:
            assert row_macs.check_rows(store, conn).wrong == 0
