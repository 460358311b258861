"""The style sheets, the script and the icon, held in memory. They are a closed list, so no address can name another file."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response

from medloop.api.policy import NotFoundError

CONTENT_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class StaticFile:
    body: bytes
    content_type: str


@cache
def static_files() -> dict[str, StaticFile]:
    paths = sorted((Path(__file__).parent / "static").iterdir())
    return {
        path.name: StaticFile(path.read_bytes(), CONTENT_TYPES[path.suffix]) for path in paths if path.suffix in CONTENT_TYPES
    }


@cache
def version() -> str:
    """Changes when any static file does, so that browsers may cache them."""
    return hashlib.sha256(b"".join(file.body for file in static_files().values())).hexdigest()[:12]


@router.get("/widget.js")
def widget() -> Response:
    """For pages of other origins: they load this script, and nothing else of ours (request_filter.py)."""
    file = static_files()["widget.js"]
    return Response(file.body, media_type=file.content_type, headers={"Cache-Control": "public, max-age=3600"})


@router.get("/web/static/{name}")
def static_file(name: str) -> Response:
    file = static_files().get(name)
    if file is None:
        raise NotFoundError("There is no such file")
    # Pages name them with their version, so a browser may keep them forever.
    return Response(file.body, media_type=file.content_type, headers={"Cache-Control": "public, max-age=31536000, immutable"})
