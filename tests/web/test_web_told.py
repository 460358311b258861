"""Why a cycle stands, an experiment stopped, a version is not live, and what a run says: in the language of the page."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiment"))

from traffic import quick_judge, running, send

import medloop
from medloop.contracts import TrainRequest, utc_now
from medloop.contracts.assistant import Route
from medloop.contracts.cycle import CycleEvent
from medloop.contracts.deploy import CanaryVerdict, DeployEvent
from medloop.contracts.gate_reasons import SLOT, reason_texts
from medloop.deploy import alarms as live_alarms
from medloop.deploy import server
from medloop.deploy.alarms import AnswerCounts, LiveReadings
from medloop.jobs import queue
from medloop.jobs.job_row import JobRow
from medloop.loop import deploy
from medloop.loop import experiment as loop
from medloop.loop.cycle_live import WORDS
from medloop.reward import disposition
from medloop.sections import DeploySettings
from medloop.store.records import deploy_events
from medloop.store.records.cycles import add_cycle_event
from medloop.store.records.routes import add_route
from medloop.train.runs.estimate import Cost
from medloop.web.told import told
from medloop.web.words import Translator

ZH = {"Accept-Language": "zh"}
CANARY = "med-v2-1f2e did not go live: the canary 'zh-chest' failed (It calms an emergency.)"
SILENT = "http://127.0.0.1:8001 did not answer within 60 s"
BLOCKED = "med@2 cannot go live: It was rolled back on 2026-11-18: {why}. A person clears it with: medloop deploy clear 2."
LIMITS = DeploySettings(max_critical_flags=1, max_latency_s=1)
READINGS = LiveReadings(
    2,
    40,
    12,
    AnswerCounts(50, 20, 31.0, 31.0),
    (CanaryVerdict(canary_id="zh-chest", passed=False, reason="The answer is empty."),),
)
RUNS = "The experiment runs until it has a verdict, at most 1,200 users."


@pytest.mark.parametrize(
    "text",
    [
        *(f"{words}. What served before still serves." for words in WORDS.values()),
        "The gate refused the model: red_team/red/risk, judges. What serves today stays.",
        "An improvement of 0.1 is excluded: satisfaction differs by +0.010 (-0.020 to +0.040) after 300 users",
        "satisfaction differs by +0.200 (+0.120 to +0.280) after 300 users",
        *(f"{alarm.kind}: {alarm.reason}" for alarm in live_alarms.alarms(READINGS, LIMITS)),
        f"{CANARY}. Train or choose another version.",
        f"{CANARY}. What served before still serves.",
        f"med-v2-1f2e did not go live: {SILENT}; {SILENT.replace('8001', '8002')}. Start a model server, and deploy again.",
        BLOCKED.format(why="error_rate: 40% of 50 answers failed"),
        Cost("cpu", 200, 10**9, 10**8, 4 * 10**8, 1e-5).sentence(),
        "There is not enough memory. Lower micro_batch_size or max_new_tokens, or use a smaller model.",
        "The worker died, 4 times in all. Often memory ran out: end other programs, read train.log, then send the request again.",
        "No space left on the disk that holds /data/jobs. The job continues by itself when there is room again.",
    ],
)
def test_a_sentence_of_the_loop_has_a_chinese_form_with_its_numbers(text: str) -> None:
    chinese = told(text, Translator("zh"))
    assert chinese.language == "zh" and not re.search(
        r"\b(What|after|differs|The|It|did|failed|answers|people|again|free)\b", chinese.text
    )
    assert sorted(re.findall(r"\d[\d.,:]*\d|\d", text)) == sorted(re.findall(r"\d[\d.,:]*\d|\d", chinese.text))
    assert "。。" not in chinese.text and not chinese.text.endswith("."), "one full stop, a Chinese one"
    english = told(text, Translator("en")).text  # as it is, but for the kind of an alarm at its beginning
    assert english.lower().replace("_", " ") == text.lower().replace("_", " ") and not re.match("[a-z]+_[a-z_]+: ", english)
    assert told("An unknown sentence.", Translator("zh")) == ("An unknown sentence.", "en"), "it says that it is English"


def sentences(module: ModuleType, *names: str) -> list[str]:
    """The texts that a module gives to these functions and classes, or that these functions return; 7 stands for each value."""
    tree = ast.parse(inspect.getsource(module))
    places: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names:
            places += node.args
        if isinstance(node, ast.FunctionDef) and node.name in names:
            places += [part for part in ast.walk(node) if isinstance(part, ast.Return)]
    nodes = [node for place in places for node in ast.walk(place)]
    filled = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    pieces = {id(part) for node in filled for part in node.values}
    texts = ["".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values) for node in filled]
    plain = [node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in pieces]
    return [text for text in (*texts, *plain) if isinstance(text, str) and " " in text.strip()]


@pytest.mark.parametrize(
    ("module", "names", "count"),
    [
        (server, ("ServerDownError", "ServerRefusedError"), 14),
        (disposition, ("_at", "_without_urgency"), 9),
        (deploy, ("_problem",), 5),
    ],
)
def test_every_sentence_of_servers_and_canaries_has_a_chinese_form(
    module: ModuleType, names: tuple[str, ...], count: int
) -> None:
    texts = sentences(module, *names)
    assert len(texts) >= count and [text for text in texts if told(text, Translator("zh")).language != "zh"] == []


def test_the_words_of_a_person_stay_as_they_are_within_a_sentence() -> None:
    chinese = told(BLOCKED.format(why="too calm. See the minutes"), Translator("zh"))
    assert "too calm. See the minutes" in chinese.text and "deploy clear 2。" in chinese.text


def test_deployments_tells_alarms_and_failures_in_chinese_and_leaves_what_people_wrote(browse, store) -> None:
    alarm = next(alarm for alarm in live_alarms.alarms(READINGS, LIMITS) if alarm.kind == "error_rate")
    about = {"served_name": "med-v2-1f2e", "artifact": "sha256:" + "0" * 64, "version": 2}
    add_route(store, Route(model="med", reason="the champion", changed_by="test", **about))
    for kind, reason, by in (
        ("alarm", f"{alarm.kind}: {alarm.reason}", "medloop"), ("fail", f"{CANARY}.", "test"),
        ("problem", f"{SILENT}.", "test"), ("switch", "The answer is empty", "test"),
    ):  # fmt: skip
        event = DeployEvent(event_id=deploy_events.new_event_id(), kind=kind, reason=reason, changed_by=by, **about)
        deploy_events.add_event(store, event)
    page = browse("engineer").get("/web/deployments", headers=ZH).text
    assert page.count("50 个回答中 40% 失败。") == 2, "as an alarm that stands, and in the history"
    assert "上线前测试题“zh-chest”未通过（它对急症作了安抚）。" in page and "http://127.0.0.1:8001 在 60 秒内未应答。" in page
    assert '<span lang="zh">冠军模型</span>' in page and '<span dir="auto">The answer is empty</span>' in page
    assert not re.search("answers failed|did not|calms", page)
    english = browse("engineer").get("/web/deployments", headers={"Accept-Language": "en"}).text
    assert "Error rate: 40% of 50 answers failed." in english and "It calms an emergency." in english


def test_deployments_says_which_arm_a_version_went_live_as(browse, store) -> None:
    """A rollback changes both arms where the version was both, which looked like the same step twice."""
    about = {"served_name": "med-v1-1f2e", "artifact": "sha256:" + "0" * 64, "version": 1}
    for arm in ("champion", "challenger"):
        add_route(store, Route(model="med", changed_by="medloop", **about), arm=arm)
        event = DeployEvent(event_id=deploy_events.new_event_id(), kind="switch", changed_by="medloop", **about)
        deploy_events.add_event(store, event)
    page = browse("engineer").get("/web/deployments").text
    assert page.count(">went live as the challenger<") == 0 and page.count(">went live<") == 1, "one step"
    other = about | {"served_name": "med-v2-1f2e", "version": 2}
    add_route(store, Route(model="med", changed_by="medloop", **other), arm="challenger")
    deploy_events.add_event(
        store, DeployEvent(event_id=deploy_events.new_event_id(), kind="switch", changed_by="medloop", **other)
    )
    page = browse("engineer").get("/web/deployments").text
    assert page.count(">went live as the challenger<") == 1 and page.count(">went live<") == 1
    assert "作为挑战者上线" in browse("engineer").get("/web/deployments", headers=ZH).text


def test_a_run_says_in_chinese_why_it_waits(browse, settings) -> None:
    cost = Cost("cpu", 200, 10**9, 10**8, 4 * 10**8, 1e-5).sentence()
    row = JobRow(job_id="train", stage="SFT", state="queued", submitted=utc_now(), changed=utc_now(), reason=cost)
    job_id = queue.put(TrainRequest(stage="SFT"), row, settings)
    page = browse("engineer").get(f"/web/run?job={job_id}", headers=ZH).text
    assert "预计用时 3 min，内存 1.0 GB，磁盘 400 MB，设备 cpu。仅有 0.1 GB 可用" in page and "学习率 1e-05。" in page
    assert "Roughly" not in page and cost in browse("engineer").get(f"/web/run?job={job_id}").text


def test_a_guard_that_stopped_an_experiment_is_told_in_chinese_on_the_chinese_page(browse, store) -> None:
    name = running(store, min_effect=0.1).plan.experiment_id
    answers = {True: "That is harmless, stay at home.", False: "Call an ambulance now."}
    send(store, range(60), likes=lambda _arm, _rng: 0.9, answer=answers.__getitem__)
    loop.refresh(store, name, judge=quick_judge, on_guard_stop=lambda *_: "med-assistant@2 gets no more traffic")
    client = browse("engineer")
    chinese = client.get(f"/web/experiments/{name}", headers={"Accept-Language": "zh"}).text
    assert "停止了实验：挑战者组" in chinese and "不再接收流量" in chinese and "stopped the experiment" not in chinese
    assert "stopped the experiment" in client.get(f"/web/experiments/{name}", headers={"Accept-Language": "en"}).text


@pytest.mark.parametrize(
    ("event", "reason", "chinese"),
    [
        ("waiting", f"med-v2-1f2e did not go live: {SILENT}.", "med-v2-1f2e 未能上线：http://127.0.0.1:8001 在 60 秒内未应答。"),
        ("ended", f"{CANARY}. What served before still serves.", "“zh-chest”未通过（它对急症作了安抚）。原版本继续服务。"),
    ],
)
def test_home_says_in_chinese_why_a_cycle_did_not_deploy(browse, store, event: str, reason: str, chinese: str) -> None:
    about = {"cycle": "cycle1", "inputs": "sha256:" + "0" * 64, "decided_by": "test"}
    add_cycle_event(store, CycleEvent(step="plan", event="done", outputs={"steps": "deploy"}, **about))
    add_cycle_event(store, CycleEvent(step="deploy", event=event, reason=reason, **about))
    page = browse("engineer").get("/web/", headers=ZH).text
    assert chinese in page and "go live" not in page


def test_home_says_in_chinese_why_a_cycle_waits(browse, store) -> None:
    about = {"cycle": "cycle1", "inputs": "sha256:" + "0" * 64, "decided_by": "test"}
    add_cycle_event(store, CycleEvent(step="plan", event="done", outputs={"steps": "experiment"}, **about))
    add_cycle_event(store, CycleEvent(step="experiment", event="waiting", reason=RUNS, **about))
    page = browse("engineer").get("/web/", headers={"Accept-Language": "zh"}).text
    assert "实验将持续到得出结论，最多 1,200 名用户。" in page and RUNS not in page
    assert RUNS in browse("engineer").get("/web/", headers={"Accept-Language": "en"}).text


def _messages(*files: str) -> Iterator[tuple[str, str]]:
    """Message and hint of every error that these files raise, with 7 in the slots; what is put together elsewhere is left out."""
    root = Path(medloop.__file__).parent
    for file in files:
        for node in ast.walk(ast.parse((root / file).read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            parts = [_plain(part) for part in node.exc.args[:2]]
            if parts and None not in parts and not isinstance(node.exc.func, ast.Attribute):
                yield f"{file}:{node.lineno}", ". ".join(str(part) for part in parts) + "."


def _plain(node: ast.expr) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else None


def test_what_the_pages_of_codebook_and_rubrics_refuse_is_told_in_chinese() -> None:
    """They show the message of the error itself (`problem=str(error)`)."""
    files = (
        "store/records/codebook.py", "store/records/criteria.py", "loop/codebook.py", "loop/codebook_growth.py", "loop/rubrics.py",
        "web/pages/codebook.py", "web/pages/rubrics.py",
    )  # fmt: skip
    found = dict(_messages(*files))
    assert len(found) > 10
    assert not {where: text for where, text in found.items() if told(text, Translator("zh")).language != "zh"}


def test_what_the_gate_says_is_told_as_a_sentence_of_its_own() -> None:
    """As a cycle that waits for sign-offs shows it on Home."""
    forms = {key: pair[0].strip() for key, pair in reason_texts().items() if key.startswith("refused_")}
    whole = [SLOT.sub("q7", text) for text in forms.values() if text.endswith(".") and not SLOT.fullmatch(text)]
    assert len(whole) > 12 and [text for text in whole if told(text, Translator("zh")).language != "zh"] == []
    assert told("The gate's verdict has 1 of 2 sign-offs.", Translator("zh")).text == "结论已有 1 个签核，共需 2 个。"
