"""`create_app(settings)`: routes, errors, request checks, the one writer of the store, and a supervisor that runs the jobs.

    uvicorn.run(create_app(settings), port=8000, http=SlowClientProtocol, proxy_headers=False)      # as medloop api serve does

Every route carries a policy (policy.py) except those in OPEN. A request passes metrics.py, request_filter.py (its headers),
admission.py (who sends it; only then its body is read) and then its route. At shutdown the writer stores what was submitted; jobs
keep running, and the next start finds them.
"""

import gc
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI

from medloop import __version__
from medloop.api import errors
from medloop.api.admission import Admission
from medloop.api.auth import Authenticator
from medloop.api.client_address import TrustedProxies
from medloop.api.json_route import DirectRoutes
from medloop.api.limits import RateLimiter, RequestLimits, RequestSlots
from medloop.api.metrics import HttpCounts, MetricsMiddleware
from medloop.api.policy import Caller, allow
from medloop.api.request_filter import LOOPBACK, RequestFilter
from medloop.api.routes import (
    chat,
    codebook,
    data,
    deploy,
    experiments,
    feedback,
    feedback_read,
    gate,
    incidents,
    lineage,
    quarantine,
    queue,
    registry,
    rubrics,
    sites,
    train,
    users,
    widget,
)
from medloop.deploy.alarms import LiveAnswers
from medloop.feedback.submit import phi_scan
from medloop.feedback.submit.doubt import doubt_about
from medloop.feedback.submit.scan_workers import ScanWorkers
from medloop.jobs.deploy_watch import DeployWatch
from medloop.jobs.drift_watch import DriftWatch
from medloop.jobs.retrain import Retrainer
from medloop.jobs.supervisor import Supervisor
from medloop.jobs.telemetry_watch import TelemetrySender
from medloop.loop.assistant import open_assistant
from medloop.loop.experiment_watch import ExperimentWatch
from medloop.loop.queue_filler import QueueFiller
from medloop.privacy.phi import allowed
from medloop.serve.gateway.backends import BackendAddress
from medloop.serve.gateway.gateway import Gateway
from medloop.settings import Settings
from medloop.store.db import open_store
from medloop.store.records.group_commit import GroupCommitWriter
from medloop.store.records.users import ROLES
from medloop.store.row_watch import RowWatch

# FastAPI would send messages of exceptions, which may hold what people wrote, to whatever OpenTelemetry finds in the environment.
NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
# Routes without a login; a test walks all routes and compares.
OPEN = {"/healthz", "/widget.js", "/", "/web", "/web/login", "/web/language/{language}", "/web/static/{name}"}


def create_app(
    settings: Settings,
    *,
    hosts: tuple[str, ...] = LOOPBACK,
    slots: int = 1,
    supervise: bool = True,
    limits: RequestLimits = RequestLimits(),
    own_process: bool = False,
    backends: Sequence[BackendAddress] = (),
    pages: Sequence[APIRouter] = (),
    error_page: errors.ErrorPage | None = None,
) -> FastAPI:
    """The API of one workspace; web/app.py adds the pages. `supervise` False leaves the jobs to 'medloop jobs work'.

    `own_process`: nothing else runs in this process, so its garbage collector may be tuned for a server.
    `backends`: model servers that were started for this one, beside those of the settings.
    """

    allowed.use(settings.allow_file)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            store = stack.enter_context(open_store(settings))
            with store.read() as conn:
                store.keys.master(conn)  # do not start without the right key, or with one that others can read
            app.state.store, app.state.authenticator = store, Authenticator(store)
            if own_process:
                stack.enter_context(phi_scan.scanning_with(ScanWorkers(settings.allow_file)))
            app.state.writer = stack.enter_context(GroupCommitWriter(store, max_waiting=4 * limits.in_flight).running())
            stack.enter_context(QueueFiller(store, app.state.writer).running())
            assistant = open_assistant(store, app.state.writer, settings, own=backends, on_answer=app.state.live_answers.add)
            app.state.gateway = await stack.enter_async_context(assistant)
            warming = threading.Thread(target=_warm, args=(own_process, app.state.gateway), daemon=True)
            warming.start()
            stack.callback(warming.join)  # native code that still runs in a thread when Python ends aborts the process
            if supervise:
                stack.enter_context(RowWatch(store).running())
                stack.enter_context(Supervisor(settings, slots=slots).running())
                stack.enter_context(Retrainer(store, settings).running())
                stack.enter_context(DriftWatch(store, settings).running())
                stack.enter_context(DeployWatch(store, app.state.live_answers).running())
                stack.enter_context(TelemetrySender(store, settings).running())
                stack.enter_context(ExperimentWatch(store).running())
            yield

    # FastAPI's own docs pages load scripts from other sites; the description itself needs a key like everything else.
    # Its redirects to the same address with or without a slash would name http, whatever the proxy in front of us speaks.
    app = FastAPI(
        title="medloop", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None,
        redirect_slashes=False, telemetry=NO_TELEMETRY,
    )  # fmt: skip
    app.state.settings = settings
    app.state.live_answers = LiveAnswers()  # the gateway adds each answer; jobs/deploy_watch.py reads them
    app.state.rate_limiter, app.state.http_counts = RateLimiter(limits.rate), HttpCounts()
    app.state.request_slots, app.state.waiting_connections = RequestSlots(limits.in_flight), {}  # slow_clients.py
    app.state.error_page = error_page
    app.state.dashboard_cache = {}  # web/pages/dashboard.py
    # Routes are tried in this order, so the busiest come first.
    routes = (
        chat,
        feedback,
        widget,
        queue,
        feedback_read,
        incidents,
        train,
        data,
        quarantine,
        lineage,
        registry,
        gate,
        codebook,
        rubrics,
        deploy,
        sites,
        users,
        experiments,
    )
    for router in (*(module.router for module in routes), feedback_read.metrics_router, *pages):
        # Each has its prefix already. Included, FastAPI would put every route together anew for each app, at its first request.
        app.router.routes.extend(router.routes)
    app.router.middleware_stack = DirectRoutes(app.router.middleware_stack, (*feedback.router.routes, *widget.router.routes))

    @app.get("/healthz")
    def healthz() -> dict[str, bool]:
        """Whether the server answers."""
        return {"ok": True}

    @app.get("/api/openapi.json")
    def description(caller: Annotated[Caller, Depends(allow(*ROLES, scope=None))]) -> dict[str, Any]:
        """The OpenAPI description of every endpoint."""
        return app.openapi()

    app.add_middleware(Admission, slots=app.state.request_slots)
    errors.install(app)
    origins = frozenset(settings.gateway.widget_origins.replace(",", " ").split())
    app.add_middleware(RequestFilter, hosts=hosts, proxies=TrustedProxies(settings.trusted_proxies), widget_origins=origins)
    app.add_middleware(MetricsMiddleware, counts=app.state.http_counts)  # the last one added is the outermost
    return app


def _warm(own_process: bool, gateway: Gateway) -> None:
    """Load the word lists of the privacy scan and the guards, which takes seconds. They and the modules are never freed, so the
    garbage collector need not walk them again and again, which takes a fifth of the time of a request."""
    doubt_about(["warm"])
    gateway.warm()
    if own_process:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)
