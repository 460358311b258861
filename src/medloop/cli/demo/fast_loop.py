"""The part of `medloop demo` that corrects at once: a correction becomes an approved rule, and the next answer has it.

The question is one that the guard for emergencies does not know: a stroke, told as a family tells it. The two clinicians are
invented. A second demo finds the rule live and asks again.
"""

from pathlib import Path

from medloop.cli import ui
from medloop.cli.demo.asking import ask, show_answer
from medloop.cli.demo.clinicians import CLINICIANS, demo_store, demo_user
from medloop.cli.demo.run import run_step
from medloop.client import Client
from medloop.loop.codebook_trial import approve_entry
from medloop.store.records import codebook

QUESTION = "我妈吃饭的时候筷子老是掉，嘴角有点流口水，是不是累了？"
AGAIN = "我爸吃饭的时候筷子老是掉，嘴角有点流口水，是不是没睡好？"
GOLDEN = "这可能是中风，请立即拨打120送急诊。不要让她吃东西，记下开始的时间。"
REASON = "拿不住筷子、嘴角流口水可能是中风，首先让患者立即拨打120。"


def correct_at_once(folder: Path, address: str, key: str, client: Client) -> None:
    """Ask, correct, propose, try, approve, and ask again, while the servers run."""
    ui.say("\n# Correct it at once: an emergency that the guard does not know, told as a family tells it")
    before = ask(address, key, QUESTION)
    show_answer("before", QUESTION, before)
    if not is_live(folder):
        trace = before["medloop"]["inference_id"]
        client.correction(trace_id=trace, golden=GOLDEN, reason=REASON, clinician_id=CLINICIANS[0], consent=["training"])
        ui.say(f"{CLINICIANS[0]} (invented) corrects it: {GOLDEN}")
        run_step("codebook propose", folder, "The correction becomes a proposed rule, with the expert's first sentence")
        entry = proposal(folder)
        run_step(f"codebook try {entry}", folder, "Try it on the regression set: what gets better, what gets worse?")
        approve(folder, entry)
    answer = ask(address, key, AGAIN)
    show_answer("the next patient", AGAIN, answer)
    ui.say(f"Trace {answer['medloop']['inference_id']} names the rule, the rule names the correction, and that the answer above.")
    run_step("codebook list", folder, "The codebook")


def is_live(folder: Path) -> bool:
    with demo_store(folder) as store:
        return any(entry.text == REASON for entry in codebook.live(store).entries)


def proposal(folder: Path) -> str:
    with demo_store(folder) as store:
        return next(entry.entry_id for entry in codebook.entries(store) if entry.text == REASON and entry.state == "proposed")


def approve(folder: Path, entry_id: str) -> None:
    """Clinicians other than the author approve it, two where a critical case gets worse."""
    with demo_store(folder) as store:
        for name in CLINICIANS[1:]:
            person, entry = demo_user(store, name, "clinician"), codebook.get_entry(store, entry_id)
            version, _ = approve_entry(store.settings, store, entry, by=person.user_id, reason="It names the stroke.")
            ui.say(f"{name} (invented) approves {entry_id}.")
            if version is not None:
                break
    ui.say(f"Real clinicians approve with their password: medloop codebook approve {entry_id} --user NAME")
