"""The tables, as they are after the last migration. A change here needs a migration; a test compares the two.

    core        audit log, data keys, guidelines for raters, workspace settings
    feedback    feedback, preferences, corrections, their sites, withdrawals, traces, scores, incidents, red-team cases, triggers
    review      the review queue, its turns and how far it has looked by itself; quarantine
    access      users, API keys, sessions, idempotency keys
    privacy     consents, tombstones, requests for erasures that need two people
    artifacts   the catalog of artifacts, their flags, which records are in which dataset, decisions about rounds of RL
    codebook    entries of the codebook with their revisions, its versions, trials and votes
    rubric      criteria from corrections
    gate        verdicts on models, sign-offs, waivers, the policy
    registry    versions of the registry, changes of their aliases
    loop        what happened in the cycles of the loop
    serving     changes of the live route, steps of deployments, alarms, blocks
    telemetry   how far an exchange with another system has come, and which records it was given
    experiment  experiments on live traffic, their events, observations, and how far each has read
    columns     the metadata and the columns that all of them share

Columns that hold what people wrote are blobs: AES-256-GCM under the key that `key_id` and `text_key` name (`crypto.py`).
Ids, names of agents and models, numbers and times stay readable, because queries need them.
"""

from medloop.store.tables.access import api_keys, idempotency_keys, sessions, users
from medloop.store.tables.artifacts import artifact_flags, artifacts, lineage, round_events
from medloop.store.tables.codebook import codebook_cursor, codebook_entries, codebook_trials, codebook_versions, codebook_votes
from medloop.store.tables.columns import encrypted_columns, encrypted_tables, id_column, metadata, natural_id, time_columns
from medloop.store.tables.core import audit_log, data_keys, guidelines, workspace_settings
from medloop.store.tables.experiment import experiment_cursors, experiment_events, experiment_observations, experiments
from medloop.store.tables.feedback import (
    incidents,
    record_sites,
    red_team_cases,
    retrain_triggers,
    rlhf_corrections,
    rlhf_feedback,
    rlhf_preferences,
    scored_answers,
    traces,
    withdrawals,
)
from medloop.store.tables.gate import gate_policies, gate_results, gate_sign_offs, gate_waivers
from medloop.store.tables.loop import cycle_events
from medloop.store.tables.privacy import consents, erasure_requests, tombstones
from medloop.store.tables.registry import registry_aliases, registry_versions
from medloop.store.tables.review import quarantine, queue_cursor, queue_items, queue_turns
from medloop.store.tables.rubric import rubric_criteria
from medloop.store.tables.serving import deploy_events, serving_routes
from medloop.store.tables.telemetry import sent_records, sync_cursors

__all__ = [
    "api_keys", "artifact_flags", "artifacts", "audit_log", "codebook_cursor", "codebook_entries", "codebook_trials",
    "codebook_versions", "codebook_votes", "consents", "cycle_events", "data_keys", "deploy_events", "encrypted_columns",
    "encrypted_tables", "erasure_requests", "experiment_cursors", "experiment_events", "experiment_observations",
    "experiments", "gate_policies", "gate_results", "gate_sign_offs", "gate_waivers", "guidelines", "id_column",
    "idempotency_keys", "incidents", "lineage", "metadata", "natural_id", "quarantine", "queue_cursor", "queue_items",
    "queue_turns", "record_sites", "red_team_cases", "registry_aliases", "registry_versions", "retrain_triggers",
    "rlhf_corrections", "rlhf_feedback", "rlhf_preferences", "round_events", "rubric_criteria",
    "scored_answers", "sent_records", "serving_routes", "sessions", "sync_cursors",
    "time_columns", "tombstones", "traces", "users", "withdrawals", "workspace_settings",
]  # fmt: skip
