"""Erasure, composed: it knows the cards of datasets, and the training jobs that read the erased data."""

import logging

from medloop.data.feedback.write import after_erasure
from medloop.loop.knowledge import prune_vectors
from medloop.privacy.erasure import replay
from medloop.privacy.erasure.contracts import ErasureProof, ErasureRequest, TrainingJobs
from medloop.privacy.erasure.erase import erase
from medloop.settings import Settings
from medloop.store.backup.keys import refresh_keys
from medloop.store.db import Store, open_store

log = logging.getLogger(__name__)


def erase_records(store: Store, request: ErasureRequest, *, actor: str, jobs: TrainingJobs | None = None) -> ErasureProof:
    """Erasure, with what the data stage knows about its cards; training jobs on the data are known through `jobs`."""
    proof = erase(store, request, actor=actor, recard=after_erasure, jobs=jobs)
    _refresh_backups(store)
    prune_vectors(store)  # last: it may have to wait for somebody who reads the vectors, and fail for that
    return proof


def replay_erasures(
    settings: Settings, *, actor: str, jobs: TrainingJobs | None = None, refresh_backups: bool = True
) -> list[ErasureProof]:
    """Erase again what came back with a restored backup; the proofs of what had to be repeated, none if nothing came back."""
    with open_store(settings) as store:
        proofs = replay.replay_erasures(store, actor=actor, recard=after_erasure, jobs=jobs)
        if refresh_backups:
            _refresh_backups(store)
        prune_vectors(store)
    return proofs


def _refresh_backups(store: Store) -> None:
    """The keys that were destroyed must not stay in the folder of backups; the erasure itself is done if that fails."""
    if (problem := refresh_keys(store)) is not None:
        log.warning("the folder of backups still has the destroyed keys (%s); run: medloop backup create", problem)
