"""What an installation is made of, as CycloneDX JSON (https://cyclonedx.org/docs/1.6/json/): for scanners and for auditors.

    python tools/sbom.py build/sbom.cdx.json

Names, versions and hashes come from the locks, licences and who needs whom from the metadata of what is installed. A package has
one hash per wheel of its version; the one on a disk is among them. The same locks give the same file, to the byte.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from lock import ABOUT, CPU, ROOT, read_lock, same

Json = dict[str, Any]
OURS = "medloop"


def parts(locks: Iterable[str]) -> dict[str, tuple[str, list[str]]]:
    """All packages of all locks; two builds of one version are one part with the files of both."""
    found: dict[str, tuple[str, list[str]]] = {}
    for name, (version, hashes) in (one for text in locks for one in read_lock(text).items()):
        plain = version.removesuffix(CPU)
        found[name] = plain, sorted({*hashes, *found.get(name, ("", []))[1]})
    return found


def ref(name: str, version: str) -> str:
    """https://github.com/package-url/purl-spec"""
    return f"pkg:pypi/{name}@{version}"


def licences(name: str) -> list[Json]:
    """As the package says it: an SPDX expression, else its field, else its classifiers; nothing when it is not installed."""
    try:
        said = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    if expression := said.get_all("License-Expression"):
        return [{"expression": expression[0]}]
    plain = (said.get_all("License") or [""])[0].strip()
    if plain and "\n" not in plain and len(plain) < 80 and plain.upper() != "UNKNOWN":  # some put the whole text there
        return [{"license": {"name": plain}}]
    kinds = [one.rsplit(" :: ", 1)[-1] for one in said.get_all("Classifier") or [] if one.startswith("License :: ")]
    return [{"license": {"name": kind}} for kind in kinds]


def needs(name: str) -> set[str]:
    """Names that the installed package asks for on this platform, with any of its extras."""
    from packaging.requirements import Requirement

    try:
        found = [Requirement(text) for text in metadata.requires(name) or []]
    except metadata.PackageNotFoundError:
        return set()
    extras = ["", *(metadata.metadata(name).get_all("Provides-Extra") or [])]
    holds = [need for need in found if need.marker is None or any(need.marker.evaluate({"extra": one}) for one in extras)]
    return {same(need.name) for need in holds}


def bom(locked: Mapping[str, tuple[str, list[str]]], version: str) -> Json:
    refs = {name: ref(name, its_version) for name, (its_version, _) in sorted(locked.items())}
    ours: Json = {
        "type": "application",
        "name": OURS,
        "version": version,
        "bom-ref": ref(OURS, version),
        "licenses": licences(OURS),
    }
    made = hashlib.sha256(json.dumps([version, sorted(locked.items())]).encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, made)}",
        "version": 1,
        "metadata": {"component": ours, "tools": {"components": [{"type": "application", "name": "medloop tools/sbom.py"}]}},
        "components": [_component(name, refs[name], *locked[name]) for name in refs],
        "dependencies": [
            {"ref": one, "dependsOn": sorted(refs[need] for need in needs(name) & refs.keys() if need != name)}
            for name, one in [(OURS, ref(OURS, version)), *refs.items()]
        ],
    }


def _component(name: str, purl: str, version: str, hashes: list[str]) -> Json:
    found: Json = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    found["hashes"] = [{"alg": "SHA-256", "content": one} for one in hashes]
    if said := licences(name):
        found["licenses"] = said
    return found


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit("Say where to write it: python tools/sbom.py build/sbom.cdx.json")
    locked = parts((ROOT / file).read_text(encoding="utf-8") for file in ABOUT)
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert version is not None, "pyproject.toml has no version"
    made, path = bom(locked, version[1]), Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    without = [one["name"] for one in made["components"] if "licenses" not in one]
    unknown = f", {len(without)} without a licence known here (not installed, or they name none)" if without else ""
    sys.stdout.write(f"{path}: {len(made['components'])} packages{unknown}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
