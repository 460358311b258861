"""A model from a hub: check the list of files first, then fetch only configuration, tokenizer and safetensors.

Pickles and Python files of a repository never reach this disk. `org/name@revision` names a branch, tag or commit. A model
that was fetched once is used again without a network; `offline: true` (or HF_HUB_OFFLINE=1) never uses the network.
"""

import logging
import sys
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import disable_progress_bars

from medloop.errors import ModelError
from medloop.models.safety import WEIGHTS, check_folder, needed_name

TIMEOUT_S = 20.0  # for the first answer of the hub, not for the download

log = logging.getLogger(__name__)


def fetch(name: str, *, offline: bool) -> Path:
    """The checked local folder of hub model `name` (`org/name` or `org/name@revision`)."""
    repo, _, revision = name.partition("@")
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        folder = _cached(repo, revision) if offline else _download(repo, revision)
    except OfflineModeIsEnabled:
        folder = _cached(repo, revision)
    except GatedRepoError:
        raise ModelError(f"{repo} requires a licence", "Accept it on the model's page on the hub and set HF_TOKEN") from None
    except RepositoryNotFoundError:
        raise ModelError(
            f"The hub has no model {repo}, or it is private", "Check the name, or set HF_TOKEN for a private model"
        ) from None
    except RevisionNotFoundError:
        raise ModelError(f"{repo} has no revision {revision}", "Name a branch, tag or commit that exists") from None
    except (HfHubHTTPError, HTTPError) as error:
        log.warning("the hub did not answer (%s); looking for an earlier download of %s", type(error).__name__, name)
        folder = _cached(repo, revision)
    check_folder(folder, hub_cache=folder.parent.parent)
    return folder


def _download(repo: str, revision: str) -> Path:
    info = HfApi().model_info(repo, revision=revision or None, timeout=TIMEOUT_S)
    names = [file.rfilename for file in info.siblings or [] if needed_name(file.rfilename)]
    if not any(name.endswith(WEIGHTS) for name in names):
        raise ModelError(f"{repo} has no safetensors weights", "Choose a model that has them; pickled weights are never loaded")
    small = [name for name in names if not name.endswith(WEIGHTS)]
    # By the given name, not by commit: the cache then knows what that name means when offline.
    folder = Path(snapshot_download(repo, revision=revision or None, allow_patterns=small))
    check_folder(folder, hub_cache=folder.parent.parent)  # before the large download
    return Path(snapshot_download(repo, revision=revision or None, allow_patterns=names))


def _cached(repo: str, revision: str) -> Path:
    """The folder of an earlier download; whether its weights are complete shows when they are loaded."""
    config = try_to_load_from_cache(repo, "config.json", revision=revision or None)
    if isinstance(config, str):
        return Path(config).parent
    raise ModelError(
        f"{repo} is not on this machine, and was not fetched from the hub",
        "Check the name, or go online (offline: false); a local folder or embedded:tiny works without the hub",
    )
