"""What `codebook examples`, `prompt` and `promote` and `experiment shadow` print as a next step is run as it stands."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from medloop.cli import app
from medloop.contracts import Conversation, Correction, Feedback, Message, Trace, sha256_id
from medloop.loop import codebook_trial
from medloop.loop.workspace import init_workspace
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records import codebook, crud, lineage, users
from medloop.testing.fakes import FakeGenerate

PASSWORD = "correct horse battery"
STROKE = "我爸刚才嘴角突然歪了，说话也不清楚，怎么办？"
URGENT = "请立即拨打120急救电话。"


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    monkeypatch.setattr("medloop.store.passwords.COST", 2**4)
    monkeypatch.setattr(
        codebook_trial, "live_answers", lambda settings, store, site="all": ("learnt", lambda prompts: [URGENT for _ in prompts])
    )
    home = tmp_path / "clinic"
    init_workspace(home)
    with open_store(Settings(home=home)) as store:
        for name in ("dr.li", "dr.wu"):
            users.add_user(store, name, "clinician", password=PASSWORD, actor="test")
        author = users.get_user(store, "dr.li").user_id
        crud.add(store, [Correction(prompt=STROKE, original="休息一下就好。", golden="这可能是中风，请立即拨打120送急诊。",
                                    consent=("training",), recorded_by=author)], actor="test")  # fmt: skip
    monkeypatch.chdir(home)

    def run(line: str, ok: bool = True) -> str:
        result = CliRunner().invoke(app, shlex.split(line), input=f"{PASSWORD}\n")
        assert (result.exception is None) is ok, f"{line}: {result.output} {result.exception!r}"
        return result.output if ok else str(result.exception)

    run.home = home
    return run


def next_of(output: str) -> str:
    return re.findall(r"medloop ((?:codebook|data|experiment) [^'\n]*)", output)[-1].strip(" .")


@pytest.mark.parametrize(("command", "kind"), [("codebook examples", "example"), ("codebook prompt --user dr.li", "prompt")])
def test_a_proposal_is_shown_tried_and_approved_by_the_printed_steps(clinic, command, kind):
    shown = clinic(next_of(clinic(command)))
    assert f": {kind}," in shown
    tried = clinic(next_of(shown))
    assert "Tried with learnt" in tried
    if "codebook approve" in tried:
        assert "of the codebook is live" in clinic(next_of(tried).replace("NAME", "dr.wu"))


def test_promote_says_what_is_missing_and_each_hint_runs(clinic):
    clinic("codebook propose --no-teacher")
    with open_store(Settings(home=clinic.home)) as store:
        [entry] = codebook.entries(store)
    clinic(f"codebook approve {entry.entry_id} --user dr.wu")
    assert "not proven" in clinic(f"codebook promote {entry.entry_id} --user dr.wu", ok=False)
    with open_store(Settings(home=clinic.home)) as store:
        talk = Conversation(messages=(Message(role="user", content=STROKE), Message(role="assistant", content=URGENT)))
        for _ in range(5):
            trace = Trace(session_id="s", agent_name="a", model_version="m", conversation=talk, meta={"rules": [entry.entry_id]})
            liked = Feedback(
                session_id="s", agent_name="a", trace_id=trace.trace_id, user_query=STROKE, agent_response=URGENT, thumb="up"
            )
            crud.add(store, [trace, liked], actor="test")
    missing = clinic(f"codebook promote {entry.entry_id} --user dr.wu", ok=False)
    assert next_of(missing).startswith("data build")
    clinic(next_of(missing))
    with open_store(Settings(home=clinic.home)) as store:
        if not lineage.datasets_of(store, entry.evidence):  # one correction is too little for a dataset of its own
            with store.write() as conn:
                lineage.add_records(conn, sha256_id("dataset"), entry.evidence)
    assert "of the codebook is live" in clinic(f"codebook promote {entry.entry_id} --user dr.wu")


def test_shadow_leads_to_the_votes(clinic, monkeypatch):
    monkeypatch.setattr("medloop.cli.experiment.open_model", FakeGenerate({}, default="Rest, and drink enough.").opener())
    made = clinic("experiment plan first --champion clinic@1 --challenger clinic@2")
    name = re.search(r"experiment start (\S+)", made)[1]
    with open_store(Settings(home=clinic.home)) as store:
        talk = Conversation(messages=(Message(role="user", content="I have a cold."), Message(role="assistant", content="Rest.")))
        crud.add(store, [Trace(session_id="s", agent_name="a", model_version="clinic@1", conversation=talk)], actor="test")
    done = clinic(f"experiment shadow {name} --model embedded:tiny --limit 1")
    assert "Asked 1 questions" in done
    assert "first (exp_" in clinic(next_of(done))
