"""The API of api/app.py together with the web pages; `medloop api serve` runs this."""

from functools import partial

from medloop.api import app
from medloop.web import static_files
from medloop.web.error_page import error_page
from medloop.web.pages import (
    account,
    approvals,
    audit,
    chat,
    codebook,
    compare,
    correct,
    dashboard,
    datasets,
    deployments,
    experiments,
    filter,
    gate,
    guidelines,
    history,
    home,
    incidents,
    inspect,
    keys,
    knowledge,
    lineage,
    live,
    login,
    privacy,
    quarantine,
    queue,
    rate,
    registry,
    rubrics,
    run,
    search,
    settings,
    sites,
    teacher,
    traces,
    trust,
    users,
)

PAGES = (
    home, login, account, chat, queue, rate, compare, correct, history, quarantine, incidents, approvals, gate, dashboard, run,
    trust, lineage, registry, deployments, knowledge, audit, users, keys, settings, guidelines, static_files,
    rubrics, inspect, sites,
    codebook, experiments, live, search, traces, datasets, filter, privacy, teacher,
)  # fmt: skip

create_app = partial(app.create_app, pages=[page.router for page in PAGES], error_page=error_page)
