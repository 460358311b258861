"""Planted twins: small services and functions, each with one hole of the table in docs/security.md. Only tests run them.

A check that finds nothing here proves nothing about ours.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import pickle
import sqlite3
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse


def files(root: Path) -> FastAPI:
    """Classes 1 and 2: a name from the caller becomes a path; decoded once more, as proxies do."""
    app = FastAPI()

    def place(name: str) -> Path:
        return root / unquote(name.removeprefix("file://")).split("#")[0].split("?")[0]

    @app.post("/read")
    def read(body: dict[str, str]) -> PlainTextResponse:
        try:
            return PlainTextResponse(place(body["name"]).read_text())
        except (OSError, ValueError):
            return PlainTextResponse("none", status_code=404)

    @app.post("/write")
    def write(body: dict[str, str]) -> dict[str, bool]:
        try:
            target = place(body["name"]).resolve()
            if not target.is_relative_to(root.parent.resolve()):  # holes have a fence: tests may run as root
                return {"ok": False}
            target.write_text("owned")
        except (OSError, ValueError):
            return {"ok": False}
        return {"ok": True}

    return app


def fetching() -> FastAPI:
    """Class 9: the server asks whatever address it is given."""
    app = FastAPI()

    @app.post("/fetch")
    def fetch(body: dict[str, str]) -> dict[str, bool]:
        try:
            with urllib.request.urlopen(body["url"], timeout=1) as response:
                response.read(1)
        except (OSError, ValueError):
            return {"ok": False}
        return {"ok": True}

    return app


def bad_host() -> FastAPI:
    """Class 10: the path that is judged is put together with the Host header; the one that is served is not."""
    app = FastAPI()

    @app.middleware("http")
    async def gate(request: Request, call_next: Any) -> Any:
        seen = urlsplit(f"http://{request.headers.get('host', '')}{request.scope['path']}").path
        return await call_next(request) if seen == "/healthz" else PlainTextResponse("no", status_code=401)

    @app.get("/{path:path}")
    def everything(path: str) -> dict[str, bool]:
        return {"ok": True}

    return app


def concatenating() -> FastAPI:
    """Class 14: a filter is pasted into the statement."""
    app = FastAPI()

    @app.get("/list")
    def listed(name: str = "a") -> Any:
        with closing(sqlite3.connect(":memory:")) as db:
            db.executescript("CREATE TABLE t (name TEXT); INSERT INTO t VALUES ('a'), ('b'), ('c');")
            try:
                return [row[0] for row in db.execute(f"SELECT name FROM t WHERE name = '{name}'")]
            except sqlite3.Error as error:
                return JSONResponse({"error": str(error)}, status_code=500)

    return app


def prefix_key(good: str, given: str) -> bool:
    """Class 16: compares as far as the shorter text goes, whatever the case, and stops at the first difference."""
    pairs = zip(good.lower(), given.lower(), strict=False)
    return len(given) > 8 and all(a == b for a, b in pairs)


def page(text: str) -> str:
    """Class 17."""
    return f'<main><p>{text}</p><input value="{text}"></main>'


def table(cells: list[str]) -> str:
    """Class 19: what Gradio's flagging wrote."""
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue()


def assigning(user: dict[str, Any]) -> FastAPI:
    """Class 22: a body is poured over the record."""
    app = FastAPI()

    @app.post("/me")
    def change(body: dict[str, Any]) -> dict[str, Any]:
        user.update(body)
        return user

    return app


def talkative() -> FastAPI:
    """Class 21: an error tells what it met."""
    app = FastAPI()

    @app.exception_handler(Exception)
    async def tell(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": repr(error), "at": __file__}, status_code=500)

    @app.post("/fail")
    async def fail(request: Request) -> HTMLResponse:
        raise RuntimeError(f"cannot store {(await request.body()).decode()}")

    return app


def blocking() -> FastAPI:
    """Class 20: work that grows with the request, done where everybody waits."""
    app = FastAPI()

    @app.get("/healthz")
    async def healthz() -> dict[str, bool]:
        return {"ok": True}

    @app.post("/{path:path}")
    async def parse(request: Request) -> dict[str, bool]:
        body = await request.body()
        time.sleep(min(len(body) / 20_000, 1.5))
        await asyncio.sleep(0)
        return {"ok": True}

    return app


def load_anything(folder: Path) -> None:
    """Classes 4 and 6: refuses the names it knows to be bad, and opens the rest."""
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix not in (".bin", ".pkl", ".py"):
            try:
                pickle.loads(path.read_bytes())
            except Exception:
                json.loads("{}")


def looks_for_auto_map(folder: Path) -> None:
    """Class 5: looks in one place for one word."""
    if "auto_map" in json.loads((folder / "config.json").read_text()):
        raise ValueError("no")
