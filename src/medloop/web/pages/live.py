"""Server-sent events for the pages that move by themselves: `changed` when the store or a job is no longer as it was.

A stream is short, and the browser opens the next one by itself (static/app.js): so the session is checked again each time, and
the server ends without waiting for readers. An event has no content, and its id is a
hash that says only that it is another one: users of a site must not count what others write. The page asks for its moving part,
which has a policy of its own.
"""

import asyncio
import hmac
import os
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from medloop.api.deps import settings_of, store_of
from medloop.jobs import queue
from medloop.settings import Settings
from medloop.store import audit
from medloop.store.db import Store
from medloop.web.pages.login import AnySite

router = APIRouter(prefix="/web", include_in_schema=False)

STREAM_S, LOOK_S = 8.0, 1.0
RETRY_MS = 500
JOBS = 20  # newest jobs whose files are looked at


@router.get("/events")
async def events(request: Request, caller: AnySite) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_changes(request, caller.csrf), media_type="text/event-stream", headers=headers)


async def _changes(request: Request, secret: str) -> AsyncIterator[str]:
    store, settings = store_of(request), settings_of(request)
    seen = request.headers.get("last-event-id", "")
    yield f"retry: {RETRY_MS}\n\n"
    loop = asyncio.get_running_loop()
    end = loop.time() + STREAM_S
    while True:
        change = await run_in_threadpool(change_mark, store, settings)
        mark = hmac.digest(secret.encode(), f"events {change}".encode(), "sha256").hex()[:16]
        if mark != seen:
            yield f"event: {'changed' if seen else 'here'}\nid: {mark}\ndata: {mark}\n\n"
            seen = mark
        if loop.time() >= end:
            return
        await asyncio.sleep(LOOK_S)


def change_mark(store: Store, settings: Settings) -> str:
    """Another text when anything was written: the newest line of the audit log, and the times of the files of the newest jobs."""
    newest = 0
    for job_id in queue.ids(settings, ("train", "inspect"))[:JOBS]:
        try:
            with os.scandir(settings.workspace.jobs / job_id) as files:
                newest = max([newest, *(file.stat().st_mtime_ns for file in files)])
        except OSError:  # the job was removed meanwhile
            continue
    lines = audit.page(store, limit=1)
    return f"{lines[0]['seq'] if lines else 0}-{newest}"
