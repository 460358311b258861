"""`create_app(settings)`: routes, errors, guard, the one writer of the store, and a supervisor that runs the jobs meanwhile.

    uvicorn.run(create_app(settings), host="127.0.0.1", port=8000)          # or: medloop api serve

Every route carries a policy (policy.py) except those in OPEN. A request passes the meter, the gate (limits.py), the guard and its
route. At the end the writer stores what was handed in; jobs are not ended, and the next start finds them as they are.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from medloop import __version__
from medloop.api import errors
from medloop.api.auth import Access
from medloop.api.guard import LOOPBACK, Guard
from medloop.api.limits import Buckets, Flight, Gate, Limits, TooFastError
from medloop.api.metrics import HttpCounts, Meter
from medloop.api.policy import Caller, allow
from medloop.api.routes import data, feedback, feedback_read, quarantine, queue, train
from medloop.feedback.submit import submit
from medloop.jobs.retrain import Retrainer
from medloop.jobs.supervisor import Supervisor
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records.group_commit import GroupCommitWriter
from medloop.store.records.users import ROLES

# What needs no login; a literal list, and a test walks all routes.
OPEN = {"/healthz", "/", "/web/login", "/web/language/{language}", "/web/static/{name}"}

ErrorPage = Callable[[Request, int, str], Awaitable[Response]]


def create_app(
    settings: Settings,
    *,
    hosts: tuple[str, ...] = LOOPBACK,
    slots: int = 1,
    supervise: bool = True,
    limits: Limits = Limits(),
    own_process: bool = False,
    pages: Sequence[APIRouter] = (),
    error_page: ErrorPage | None = None,
) -> FastAPI:
    """The API of one workspace; web/app.py adds the pages. `supervise` False leaves the jobs to 'medloop jobs work'.

    `own_process`: nothing else runs here, so the garbage collector of the process may be set for a server.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as open_until_the_end:
            store = open_until_the_end.enter_context(open_store(settings))
            with store.read() as conn:
                store.keys.master(conn)  # no start without the key that fits, or with one that others can read
            app.state.store, app.state.access = store, Access(store)
            threading.Thread(target=_warm, args=(own_process,), daemon=True).start()
            app.state.writer = open_until_the_end.enter_context(
                GroupCommitWriter(store, max_waiting=4 * limits.in_flight).running()
            )
            if supervise:
                open_until_the_end.enter_context(Supervisor(settings, slots=slots).running())
                open_until_the_end.enter_context(Retrainer(store, settings).running())
            yield

    # The pages of docs_url load scripts from elsewhere; the description itself is behind the key like everything else.
    app = FastAPI(title="medloop", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.settings = settings
    app.state.buckets, app.state.http_counts = Buckets(limits.rate), HttpCounts()
    app.state.flight = Flight(limits.in_flight)
    app.state.error_page = error_page
    app.state.measured = {}  # what the dashboard counted last
    # Routes are tried in this order, so the busiest come first.
    for router in (feedback.router, queue.router, feedback_read.router, feedback_read.numbers, train.router, data.router):
        app.include_router(router)
    for router in (quarantine.router, *pages):
        app.include_router(router)

    @app.get("/healthz")
    def healthz() -> dict[str, bool]:
        """Whether the server answers; says nothing else."""
        return {"ok": True}

    @app.get("/api/openapi.json")
    def description(caller: Annotated[Caller, Depends(allow(*ROLES, scope=None))]) -> dict[str, Any]:
        """Every address with its shapes."""
        return app.openapi()

    errors.install(app)
    app.add_exception_handler(TooFastError, _too_fast)
    app.add_middleware(Guard, hosts=hosts)
    app.add_middleware(Gate, flight=app.state.flight)
    app.add_middleware(Meter, counts=app.state.http_counts)  # the last one added is the outermost
    return app


def _warm(own_process: bool) -> None:
    """Load the word lists of the scan, which takes a second. They and the modules stay for good: the collector need not walk
    them over and over, a fifth of the time of a request."""
    submit.doubt_about(["warm"])
    if own_process:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)


async def _too_fast(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TooFastError)
    answer = errors.answer(429, error.what, error.to_do)
    answer.headers["Retry-After"] = str(error.retry_after)
    return answer
