"""Erasure, composed: it knows the cards of datasets, and the training jobs that read the erased data."""

from medloop.data.feedback.write import after_erasure
from medloop.privacy.erasure import replay
from medloop.privacy.erasure.contracts import ErasureProof, ErasureRequest, TrainingJobs
from medloop.privacy.erasure.erase import erase
from medloop.settings import Settings
from medloop.store.db import Store, open_store


def erase_records(store: Store, request: ErasureRequest, *, actor: str, jobs: TrainingJobs | None = None) -> ErasureProof:
    """Erasure, with what the data stage knows about its cards; training jobs on the data are known through `jobs`."""
    return erase(store, request, actor=actor, recard=after_erasure, jobs=jobs)


def replay_erasures(settings: Settings, *, actor: str, jobs: TrainingJobs | None = None) -> list[ErasureProof]:
    """Erase again what came back with a restored backup; the proofs of what had to be repeated, none if nothing came back."""
    with open_store(settings) as store:
        return replay.replay_erasures(store, actor=actor, recard=after_erasure, jobs=jobs)
