"""`create_app(settings)`: routes, errors, guard, and a supervisor that runs the jobs while the app runs.

    uvicorn.run(create_app(settings), host="127.0.0.1", port=8000)          # or: medloop api serve

Every route carries a policy (policy.py) except those in OPEN. The app's end does not end its jobs; the next start finds them as
they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI

from medloop import __version__
from medloop.api import errors
from medloop.api.auth import Access
from medloop.api.guard import LOOPBACK, Guard
from medloop.api.policy import Caller, allow
from medloop.api.routes import train
from medloop.jobs.supervisor import Supervisor
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.users import ROLES

OPEN = {"/healthz"}  # a literal list; a test walks all routes


def create_app(settings: Settings, *, hosts: tuple[str, ...] = LOOPBACK, slots: int = 1, supervise: bool = True) -> FastAPI:
    """The app of one workspace. `supervise` False leaves the jobs to somebody else ('medloop jobs work')."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with open_store(settings) as store:
            app.state.store, app.state.access = store, Access(store)
            if not supervise:
                yield
                return
            with Supervisor(settings, slots=slots).running():
                yield

    # The pages of docs_url load scripts from elsewhere; the description itself is behind the key like everything else.
    app = FastAPI(title="medloop", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.settings = settings
    app.include_router(train.router)

    @app.get("/healthz")
    def healthz() -> dict[str, bool]:
        """Whether the server answers; says nothing else."""
        return {"ok": True}

    @app.get("/api/openapi.json")
    def description(caller: Annotated[Caller, Depends(allow(*ROLES, scope=None))]) -> dict[str, Any]:
        """Every address with its shapes."""
        return app.openapi()

    errors.install(app)
    app.add_middleware(Guard, hosts=hosts)
    return app
