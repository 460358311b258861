"""The home page: what somebody of this role can do."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from medloop.web.pages.login import Anyone
from medloop.web.render import redirect, show

router = APIRouter(include_in_schema=False)


@router.get("/")
def root() -> Response:
    return redirect("/web/")


@router.get("/web/")
def home(request: Request, caller: Anyone) -> Response:
    return show(request, caller, "home.html")
