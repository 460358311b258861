"""Merged weights: base and adapter as one model folder, for servers that cannot load adapters or should not pay for them.

    folder = write_merged(Path("/srv/serving"), stored, settings)     # …/med-assistant-v3-1f2e3d4c-merged, sealed

A new server is started on the folder, under its name; it is one more model server of `deploy.replicas`, and the route is switched
to that name like to any other. This file loads torch.
"""

from pathlib import Path

from medloop.contracts import ModelRef
from medloop.deploy.copies import copy_problem, served_name
from medloop.errors import IntegrityError
from medloop.models.load import load
from medloop.settings import Settings
from medloop.store.files.artifacts import new_artifact, verify_artifact
from medloop.store.files.atomic import make_folder
from medloop.store.records.registry import StoredVersion


def write_merged(folder: Path, stored: StoredVersion, settings: Settings) -> Path:
    """The folder; one that is there already and whole is used again."""
    record, source = stored.record, settings.home / stored.path
    target = folder / served_name(record, merged=True)
    if target.exists():
        if problem := copy_problem(target):
            raise IntegrityError(f"The merged weights in {target} were changed: {problem}", "Remove that folder, and merge again")
        return target
    if verify_artifact(source).sha256 != record.artifact:
        raise IntegrityError(
            f"{source} no longer has the bytes of {record.label}", f"Get them back: medloop registry pull {record.version} FOLDER"
        )
    loaded = load(ModelRef(base=record.base, adapter=str(source)), settings)
    make_folder(folder)
    with new_artifact(target) as new:
        loaded.model.merge_and_unload().save_pretrained(new, safe_serialization=True)
        loaded.tokenizer.save_pretrained(new)
    return target
