"""The texts of the pages: each in both languages with the same slots, each in the file of the page that uses it, none missing."""

import re
from pathlib import Path

import pytest

from medloop.contracts.feedback import AXES
from medloop.feedback.review.queue import WEIGHTS
from medloop.store.records.users import ROLES
from medloop.web import render, words
from medloop.web.navigation import GROUPS, MENU
from medloop.web.words import SLOT, Translator, table

WEB = Path(render.__file__).parent
FILES = words.files()
SHARED = {
    "filter": [WEB / "pages/filter.py", WEB / "templates/filter.html", WEB / "templates/filter_count.html"],
    "common": [WEB],
    "review": [
        WEB / "review",
        *(WEB / f"templates/{name}.html" for name in ("review", "fields", "conversation", "empty", "rate", "compare")),
    ],
    "incidents": [WEB / f"{place}" for place in ("pages/incidents.py", "templates/incidents.html", "templates/incident.html")],
    "codebook": [WEB / "pages/codebook.py", *sorted((WEB / "templates").glob("codebook*.html"))],
    "measures": [WEB / "measures.py"],
    "first_steps": [WEB / "pages/home.py", WEB / "templates/loop.html"],
    "inspect": [WEB / "pages/inspect.py", *sorted((WEB / "templates").glob("inspect*.html"))],
    "gate": [WEB / "pages/gate.py", WEB / "gate_words.py", WEB / "templates/gates.html", WEB / "templates/gate.html"],
    "knowledge": [WEB / "pages/knowledge.py", *sorted((WEB / "templates").glob("knowledge*.html"))],
    "experiments": [WEB / "pages/experiments.py", *sorted((WEB / "templates").glob("experiment*.html"))],
    "lineage": [WEB / "lineage_view.py", *sorted((WEB / "templates").glob("lineage*.html"))],
    "run": [WEB / "pages/run.py", WEB / "templates/run.html", WEB / "templates/run_live.html"],
    "traces": [WEB / "pages/traces.py", WEB / "templates/traces.html", WEB / "templates/trace.html"],
    "datasets": [WEB / "pages/datasets.py", *(WEB / f"templates/{name}.html" for name in ("datasets", "evaluation", "release"))],
    "home": [WEB / "pages/home.py", WEB / "templates/home.html", WEB / "templates/loop.html"],
    "loop_strip": [WEB / "loop_strip.py", WEB / "templates/loop.html", WEB / "templates/home.html"],
    "error": [WEB / "error_page.py", WEB / "templates/error.html", WEB / "templates/expired.html"],
}
# Keys that are put together from a name: what they start with, by file.
COMPOSED = {
    "common": ("role_", "nav_", "group_", "kind_", "axis_", "consent_", "in_language_", "message_"),
    "home": ("card_", "news_"),
    "loop_strip": ("loop_", "safety_gate_"),
    "traces": ("traces_judged_", "trace_value_", "guard_", "finding_"),
    "datasets": ("datasets_", "evaluations_", "releases_", "release_is_", "reward_models_"),
    "search": ("search_kind_",),
    "privacy": ("privacy_is_",),
    "review": ("reason_", "saved_", "queue_language_", "question_needed", "answer_needed"),
    "error": ("error_403", "error_404", "error_409", "error_413", "error_422", "error_429", "session_expired", "form_expired"),
    "history": ("fate_", "incident_", "verdict_", "history_weight_"),
    "dashboard": ("agreement_", "trained_reward_model", "trained_policy", "trigger_waits_", "trigger_reason_", "voters_"),
    "run": ("run_state_", "run_phase_", "run_alarm_", "run_note_"),
    "trust": ("trust_trusted", "trust_read_", "trust_unmeasured", "trust_recall", "trust_precision", "trust_agreement", "trust_missed", "trust_false_alarms", "trust_unknown", "trust_value", "trust_low",
        "trust_high", "trust_cases", "trust_ties", "trust_missing", "trust_kind_", "trust_problem_", "trust_wrong_", "trust_stratum_", "trust_source_"),
    "lineage": ("lineage_kind_", "lineage_kinds_", "lineage_detail_", "lineage_flag_", "lineage_role_"),
    "deployments": ("deployments_kind_", "deployments_deploy"),
    "filter": ("filter_join_", "filter_test_", "filter_rlhf_", "filter_is_", "filter_value_"),
    "registry": ("registry_gate_", "registry_promote_", "registry_action_", "registry_champion", "registry_challenger"),
    "experiments": ("experiment_state_", "experiment_open_", "experiment_is_", "experiment_guard_", "experiment_metric_",
        "experiment_group_", "experiment_event_", "experiment_decision_", "experiment_champion", "experiment_challenger"),
    "approvals": ("approvals_table_", "approvals_done_", "approvals_state_"),
    "audit": ("audit_bad_", "audit_export_"),
    "incidents": ("incidents_state_", "incident_step_", "incident_done_"),
    "codebook": tuple(f"codebook_{kind}_" for kind in ("act", "state", "none", "action", "kind", "scope", "is", "verdict", "done")),
    "rubrics": tuple(f"rubrics_{kind}_" for kind in ("state", "none", "done", "by", "maker", "is")),
    "inspect": ("inspect_is_", "inspect_done_"),
    "gate": ("gate_is_", "gate_group_", "gate_done_", "gate_set_"),
    "measures": ("measure_",),
    "told": ("told_",),
    "keys": ("scope_", "keys_state_"),
    "told_errors": ("told_",),
    "sites": ("sites_done_",),
    "account": ("password_weak_",),
    "users": ("role_is_", "users_done_", "users_active", "users_disabled"),
    "quarantine": ("quarantine_because_", "quarantine_done_", "quarantine_release", "quarantine_refuse", "state_", "part_", "phi_"),
    **{page: tuple(f"{page}_{end}" for end in ("title", "lead", "none_queued", "own_instead")) for page in ("rate", "compare", "correct")},
}  # fmt: skip


def text_of(name: str) -> str:
    """The sources that may use the texts of one file: all for common.yaml, else the handler and the template of its page."""
    places = SHARED.get(name) or [WEB / f"pages/{name}.py", WEB / f"templates/{name}.html"]
    if name in ("rate", "compare", "correct", "queue"):
        places = [*places, WEB / "review"]
    paths = [path for place in places for path in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if path.suffix in (".py", ".html") and path.exists())


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, texts in FILES.items() for key in texts])
def test_a_text_is_in_both_languages_and_used_by_its_page(name, key):
    en, zh = FILES[name][key]
    assert en and zh and sorted(SLOT.findall(en)) == sorted(SLOT.findall(zh))
    assert re.search(rf"""["']{key}["']""", text_of(name)) or key.startswith(COMPOSED.get(name, ())), (
        f"{key} is not used by {name}"
    )


def test_no_key_is_in_two_files():
    assert sum(len(texts) for texts in FILES.values()) == len(table())


def test_every_text_that_a_page_asks_for_is_there():
    everything = text_of("common")
    used = set(re.findall(r"""\bt\(["']([a-z0-9_]+)["'](?! ~)""", everything))
    assert len(used) > 100 and not used - set(table())
    reasons = {*WEIGHTS, "teaches", "explore"}
    names = [f"reason_{name}" for name in reasons] + [f"role_is_{role}" for role in ROLES] + [f"axis_{axis}" for axis in AXES]
    names += [f"{kind}_{name}" for name in MENU for kind in ("nav", "card")] + [f"card_{name}_text" for name in MENU]
    names += [f"group_{group}" for group in GROUPS]
    assert set(names) <= set(table())


def test_values_are_filled_in_as_they_are():
    assert Translator("en")("hello", name="{role} {0.__class__}") == "Hello, {role} {0.__class__}"
    assert Translator("zh").or_plain("axis_made up", "made up") == "made up"
