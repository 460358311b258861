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
    pinned: dict[str, tuple[str, list[str]]] = {}
    for name, (version, hashes) in (item for text in locks for item in read_lock(text).items()):
        plain = version.removesuffix(CPU)
        pinned[name] = plain, sorted({*hashes, *pinned.get(name, ("", []))[1]})
    return pinned


def ref(name: str, version: str) -> str:
    """https://github.com/package-url/purl-spec"""
    return f"pkg:pypi/{name}@{version}"


def licences(name: str) -> list[Json]:
    """As the package says it: an SPDX expression, else its field, else its classifiers; nothing when it is not installed."""
    try:
        info = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    if expression := info.get_all("License-Expression"):
        return [{"expression": expression[0]}]
    plain = (info.get_all("License") or [""])[0].strip()
    if plain and "\n" not in plain and len(plain) < 80 and plain.upper() != "UNKNOWN":  # some put the whole text there
        return [{"license": {"name": plain}}]
    kinds = [
        classifier.rsplit(" :: ", 1)[-1]
        for classifier in info.get_all("Classifier") or []
        if classifier.startswith("License :: ")
    ]
    return [{"license": {"name": kind}} for kind in kinds]


def needs(name: str) -> set[str]:
    """Names that the installed package asks for on this platform, with any of its extras."""
    from packaging.requirements import Requirement

    try:
        requirements = [Requirement(text) for text in metadata.requires(name) or []]
    except metadata.PackageNotFoundError:
        return set()
    extras = ["", *(metadata.metadata(name).get_all("Provides-Extra") or [])]
    holds = [
        need for need in requirements if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras)
    ]
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
    digest = hashlib.sha256(json.dumps([version, sorted(locked.items())]).encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {"component": ours, "tools": {"components": [{"type": "application", "name": "medloop tools/sbom.py"}]}},
        "components": [_component(name, refs[name], *locked[name]) for name in refs],
        "dependencies": [
            {"ref": purl, "dependsOn": sorted(refs[need] for need in needs(name) & refs.keys() if need != name)}
            for name, purl in [(OURS, ref(OURS, version)), *refs.items()]
        ],
    }


def _component(name: str, purl: str, version: str, hashes: list[str]) -> Json:
    component: Json = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    component["hashes"] = [{"alg": "SHA-256", "content": digest} for digest in hashes]
    if licence := licences(name):
        component["licenses"] = licence
    return component


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit("Say where to write it: python tools/sbom.py build/sbom.cdx.json")
    locked = parts((ROOT / file).read_text(encoding="utf-8") for file in ABOUT)
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert version is not None, "pyproject.toml has no version"
    document, path = bom(locked, version[1]), Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    without = [component["name"] for component in document["components"] if "licenses" not in component]
    unknown = f", {len(without)} without a licence known here (not installed, or they name none)" if without else ""
    sys.stdout.write(f"{path}: {len(document['components'])} packages{unknown}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
