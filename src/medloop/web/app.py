"""The whole door: the API of api/app.py with the web pages. `medloop api serve` serves this."""

from __future__ import annotations

from functools import partial

from medloop.api import app
from medloop.web.error_page import error_page
from medloop.web.pages import overview, quarantine, rate, session

PAGES = (session.router, rate.router, overview.router, quarantine.router)

create_app = partial(app.create_app, pages=PAGES, error_page=error_page)
