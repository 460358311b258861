"""Classes 7, 8, 17, 19 and 23: texts of strangers stay texts, in templates, tokens, pages and tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import quote

import jinja2
import pytest
import twins
from payloads import FORMULAS, SCRIPTS, TEMPLATES, TOKENS
from sec_world import World

from medloop.contracts import Message
from medloop.jobs.worker import work
from medloop.models.template import control_ids, encode_example, render_prompt
from medloop.store.files import spreadsheet
from medloop.testing.models import tiny_tokenizer
from medloop.web import render


def rated(world: World, text: str, who: str = "clinician", **more: str) -> str:
    body = {
        "session_id": "s",
        "agent_name": "triage",  # a text like these is no name (test_borders_verdicts.py)
        "user_query": text,
        "agent_response": text,
        "comments": text,
        "rating": 2,
    } | more
    answered = world.send(who, "POST", "/api/v1/rlhf/feedback", json=body)
    assert answered.status_code == 201, answered.text
    return answered.json()["feedback_id"]


# Class 7


def check_templates(show: Callable[[str], str]) -> list[str]:
    """Payloads that did not come back as they were."""
    problems = []
    for text in TEMPLATES:
        try:
            if text not in show(text):
                problems.append(text)
        except Exception as error:
            problems.append(f"{text}: {type(error).__name__}")
    return problems


def test_text_is_never_rendered_as_a_template(world: World) -> None:
    tokenizer = tiny_tokenizer("chatml")
    assert check_templates(lambda text: render_prompt(tokenizer, (Message(role="user", content=text),))) == []

    def stored(text: str) -> str:
        record = world.send("clinician", "GET", f"/api/v1/rlhf/feedback/{rated(world, text)}").json()
        assert record["comments"] == record["user_query"] == text
        return record["agent_response"]

    assert check_templates(stored) == []


def test_red_a_twin_that_renders_text_is_found() -> None:
    assert len(check_templates(lambda text: jinja2.Template(text).render())) >= 5
    assert check_templates(lambda text: text.format(x=1))


# Class 8


def check_tokens(encode: Callable[[object, str], list[int]]) -> list[str]:
    """Texts with which more control tokens came out than with plain words."""
    problems = []
    for name in ("chatml", "none"):
        tokenizer = tiny_tokenizer(name)
        control = control_ids(tokenizer)
        plain = sum(i in control for i in encode(tokenizer, "plain words"))
        problems += [f"{name}: {text}" for text in TOKENS if sum(i in control for i in encode(tokenizer, text)) != plain]
    return problems


def ours(tokenizer, text: str) -> list[int]:
    example = encode_example(tokenizer, (Message(role="user", content=text), Message(role="assistant", content=text)))
    assert example is not None
    return example.input_ids


def pasted(tokenizer, text: str) -> list[int]:
    return tokenizer(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n{text}<|im_end|>").input_ids


def test_feedback_that_is_learnt_from_brings_no_control_token(world: World) -> None:
    """From the door to the dataset the words are kept; between dataset and model no token of control is made of them."""
    for n, text in enumerate(TOKENS):
        body = {
            "prompt": f"{text} knee number {n}?",
            "response_a": text,
            "response_b": f"rest {n}",
            "preferred": "b",
            "consent": ["training"],
        }
        assert world.send("clinician", "POST", "/api/v1/rlhf/preference", json=body).status_code == 201
    filed = world.send("engineer", "POST", "/api/v1/data/build", json={"name": "tokens"})
    assert filed.status_code == 202 and work(filed.json()["job_id"], world.settings).state == "succeeded"
    lines = (world.settings.home / "data/feedback/tokens/preferences.jsonl").read_text(encoding="utf-8").splitlines()
    learnt = [json.loads(line) for line in lines if "<|im_" in line]
    assert learnt, "the payloads did not reach the dataset, so nothing was tested"
    assert check_tokens(ours) == []


def test_red_a_twin_that_pastes_text_between_tokens_is_found() -> None:
    assert len(check_tokens(pasted)) >= 5


# Class 17


class Skeleton(HTMLParser):
    """Elements, names of attributes, and links: what a text must not be able to change.

    Backticks in an answer become `code` (web/markdown.py), so a text with backticks may add as many of these as it has pairs.
    """

    def __init__(self, codes: int) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.codes = codes

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "code" and not attrs and self.codes:
            self.codes -= 1
            return
        names = sorted(name for name, _ in attrs)
        bad = [
            value
            for name, value in attrs
            if name in ("href", "src", "action", "formaction") and "script:" in (value or "").lower()
        ]
        self.seen.append(f"{tag} {names} {bad}")


def skeleton(page: str, codes: int = 0) -> list[str]:
    parser = Skeleton(codes)
    parser.feed(page)
    return parser.seen


TEXTS_ON_A_PAGE = 2  # the question and the answer, which are Markdown
RAW_CODE = ["<code>x</code>", "</code><code>x"]  # only backticks may make this element


def check_scripts(show: Callable[[str], str]) -> list[str]:
    """Payloads that made the page another one than a plain word makes it."""
    plain = skeleton(show("plainword"))
    assert plain
    return [
        text for text in [*SCRIPTS, *RAW_CODE] if skeleton(show(text), codes=TEXTS_ON_A_PAGE * (text.count("`") // 2)) != plain
    ]


def pages_of(world: World) -> dict[str, Callable[[str], str]]:
    def get(path: str, who: str = "clinician") -> str:
        return world.send(who, "GET", path).text

    return {
        "said anew": lambda text: get(f"/web/rate?again={rated(world, text)}"),
        "login": lambda text: get(f"/web/login?next={quote(text)}&why={quote(text)}"),
        "audit": lambda text: get(f"/web/audit?actor={quote(text[:100])}&action={quote(text[:60])}", "auditor"),
        "not found": lambda text: get(f"/web/{quote(text, safe='')}"),
        "user": lambda text: world.send("admin", "POST", "/web/users", data={"name": f"<{text}", "role": text}).text,
    }


@pytest.mark.parametrize("page", ["said anew", "login", "audit", "not found", "user"])
def test_a_hundred_scripts_change_no_page(world: World, page: str) -> None:
    assert len(SCRIPTS) >= 100
    assert check_scripts(pages_of(world)[page]) == []


def test_red_an_element_that_backticks_may_make_is_found_where_there_are_none() -> None:
    assert set(RAW_CODE) <= set(check_scripts(twins.page))


def test_red_pages_without_escaping_are_found(world: World, monkeypatch) -> None:
    assert len(check_scripts(twins.page)) >= 60
    monkeypatch.setattr(render._environment(), "autoescape", False)
    render._environment().cache.clear()
    try:
        assert check_scripts(pages_of(world)["said anew"])
    finally:
        render._environment().cache.clear()


# Class 19


def check_cells(cells: list[list[str]]) -> list[str]:
    """Cells that a spreadsheet would run."""
    return [
        cell
        for row in cells
        for cell in row
        if cell.lstrip(" \u00a0\ufeff")[:1] in tuple("=+-@\t\r\n＝＋－＠") and cell.strip(" \u00a0\ufeff")
    ]


def exported(world: World) -> list[list[str]]:
    text = world.send("other", "GET", "/api/v1/rlhf/export?format=csv").text
    return list(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))


def test_an_export_runs_nothing_and_loses_nothing(world: World) -> None:
    for text in FORMULAS:
        rated(world, text, "other", agent_name="a")
    rows = exported(world)
    assert check_cells(rows) == []
    back = {spreadsheet.unguard(row[rows[0].index("comments")]) for row in rows[1:]}
    assert set(FORMULAS) <= back


def test_red_a_table_without_the_guard_is_found(world: World, monkeypatch) -> None:
    twin = list(csv.reader(io.StringIO(twins.table(FORMULAS), newline="")))
    assert len(check_cells(twin)) >= 12
    rated(world, "=1+1", "other", agent_name="a")
    monkeypatch.setattr(spreadsheet, "guard", lambda text: text)
    assert check_cells(exported(world))
