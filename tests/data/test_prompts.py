"""`medloop data prompts`, through the command."""

import json
import re
from collections import Counter

from data_desk import Desk, questions

from medloop.contracts import Prompt, Record


def prompts(desk: Desk) -> list[Prompt]:
    lines = (desk.rl / "training_prompts.jsonl").read_text(encoding="utf-8").splitlines()
    return [Prompt.from_json(line) for line in lines]


def test_at_least_the_asked_share_is_high_risk_and_languages_are_kept(desk: Desk) -> None:
    desk.import_rows("a", questions(500))
    desk.run("prepare", "--gold", "20", "--red", "20")
    assert "100 prompts, 45% high-risk" in desk.run("prompts", "--n", "100", "--high-risk", "0.45").out
    drawn = prompts(desk)
    assert sum(prompt.strata[0] != "routine" for prompt in drawn) == 45
    assert len({prompt.prompt_id for prompt in drawn}) == 100
    assert 35 < Counter(prompt.language for prompt in drawn)["zh"] < 65
    card = json.loads((desk.rl / "training_prompts.card.json").read_text(encoding="utf-8"))
    assert card["high_risk"] == 45 and card["file"]["rows"] == 100


def test_prompts_come_from_train_alone_and_carry_no_answer(desk: Desk) -> None:
    desk.import_rows("a", questions(400))
    desk.run("prepare", "--gold", "40", "--red", "40")
    desk.run("prompts", "--n", "50")
    train = {(r.origin.source, r.origin.line): r for r in map(Record.model_validate, desk.records("train.jsonl"))}
    for prompt in prompts(desk):
        record = train[prompt.origin.source, prompt.origin.line]
        assert prompt.messages == record.conversation.prompt
        assert prompt.messages[-1].role == "user"


def test_the_draw_depends_on_the_seed_alone(desk: Desk) -> None:
    desk.import_rows("a", questions(400))
    desk.run("prepare")
    draws = []
    for seed in ("1", "1", "2"):
        desk.run("prompts", "--n", "50", "--seed", seed)
        draws.append((desk.rl / "training_prompts.jsonl").read_bytes())
    assert draws[0] == draws[1] != draws[2]


def test_too_few_are_refused_with_the_numbers_and_nothing_is_written(desk: Desk) -> None:
    assert "medloop data prepare" in desk.run("prompts").error
    desk.import_rows("a", questions(200))
    desk.run("prepare")
    assert "150 prompts need as many questions, but train has 120 (13 high-risk)." in desk.run("prompts", "--n", "150").error
    ran = desk.run("prompts", "--n", "100", "--high-risk", "0.9")
    assert ran.code == 3
    assert "100 prompts with a high-risk share of 0.9 need 90 high-risk questions, but train has 13." in ran.error
    proposed = re.findall(r"--n \d+(?: --high-risk [\d.]+)?", ran.error)
    assert len(proposed) == 2
    assert "--high-risk 0 to 1" in desk.run("prompts", "--high-risk", "1.5").error
    assert not (desk.rl / "training_prompts.jsonl").exists()
    share = (["--high-risk", "0.9"], [])
    for options, also in zip(proposed, share, strict=True):  # both options that the message proposes work
        assert desk.run("prompts", *options.split(), *also).code == 0, options


def test_context_travels_from_the_import_into_the_prompts(desk: Desk) -> None:
    rows = [
        {**row, "context": [f"Passage {n}.", "Call <b>us</b>."] if n % 2 else f"Only {n}."}
        for n, row in enumerate(questions(400))
    ]
    desk.import_rows("a", rows)
    desk.run("prepare")
    desk.run("prompts", "--n", "40")
    for prompt in prompts(desk):
        n = prompt.origin.line - 1
        assert prompt.context == ((f"Passage {n}.", "Call us.") if n % 2 else (f"Only {n}.",))
    card = json.loads((desk.rl / "training_prompts.card.json").read_text(encoding="utf-8"))
    assert card["with_context"] == 40


def test_context_is_scrubbed_like_the_conversation_and_a_bad_one_is_named_by_line(desk: Desk) -> None:
    rows = [{**row, "context": "Reach me at jane.roe@example.org."} for row in questions(40)]
    desk.import_rows("a", rows)
    desk.run("prepare", "--scrub")
    assert all("example.org" not in passage for row in desk.records("train.jsonl") for passage in row["context"])
    ran = desk.import_rows("b", [*questions(3), {**questions(1)[0], "context": 7}])
    assert "line 4" in ran.error and "'context' is neither a text nor a list of texts" in ran.error
