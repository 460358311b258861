"""The page after sending: what was stored, and what happens to it next."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from medloop.web.render import show
from medloop.web.review.flow import BACK, Rater
from medloop.web.review.targets import RECORD_OF

router = APIRouter(prefix="/web", include_in_schema=False)

FATES = ("waiting", "evaluation", "no_consent", "quarantined")


@router.get("/thanks")
def thanks_page(
    request: Request, caller: Rater, back: str = "queue", critical: bool = False, fate: str = "waiting", kind: str = "",
    record: Annotated[str, Query(max_length=200)] = "",
) -> Response:  # fmt: skip
    """The address only chooses among our own sentences."""
    again = f"/web/{kind}?again={quote(record, safe='')}" if kind in RECORD_OF and record else ""
    next_page = f"/web/{back if back in BACK else 'queue'}"
    fate = fate if fate in FATES else "waiting"
    return show(request, caller, "thanks.html", critical=critical, next_page=next_page, fate=fate, again=again)
