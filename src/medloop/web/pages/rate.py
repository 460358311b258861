"""Rate an answer: thumb, stars, the critical flag, single criteria, a comment."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from medloop.feedback.submit.bodies import FeedbackBody
from medloop.web.render import FormFields
from medloop.web.review import form as fields
from medloop.web.review.flow import Rater, open_form, submit_form
from medloop.web.review.targets import ReviewTarget
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)


@router.get("/rate")
def rate_page(request: Request, caller: Rater, own: bool = False) -> Response:
    return open_form(request, caller, "rate", ("item", "trace", "again"), own)


@router.post("/rate")
async def rate(request: Request, caller: Rater, form: FormFields) -> Response:
    return await submit_form(request, caller, "rate", _parse, form)


def _parse(values: Mapping[str, str], target: ReviewTarget | None, t: Translator) -> FeedbackBody | fields.Errors:
    body: dict[str, Any] = fields.exchange_fields(values, target)
    body |= {"thumb": values.get("thumb") or None, "rating": fields.stars_field(values, "rating")}
    body |= {"comments": fields.text_field(values, "comments"), "critical": values.get("critical") == "yes"}
    body |= {"consent": fields.consent_field(values)}
    names = [name for name, _ in fields.axis_fields(values)]
    body["axes"] = {name: stars for name in names if (stars := fields.stars_field(values, f"axis_{name}")) is not None}
    empty = not body["axes"] and not body["critical"] and all(body[name] is None for name in ("thumb", "rating", "comments"))
    errors = fields.missing_texts(values, target, t) | ({"thumb": t("say_something")} if empty else {})
    return errors or fields.validated(FeedbackBody, body, t)
