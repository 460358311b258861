"""Compare two answers to one question, shown in a random order."""

from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import Response

from medloop.feedback.submit.bodies import PreferenceBody
from medloop.web.render import FormFields
from medloop.web.review import form as fields
from medloop.web.review.flow import Rater, open_form, submit_form
from medloop.web.review.targets import ReviewTarget
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)


@router.get("/compare")
def compare_page(request: Request, caller: Rater) -> Response:
    return open_form(request, caller, "compare", ("item", "a", "b", "again"))


@router.post("/compare")
async def compare(request: Request, caller: Rater, form: FormFields) -> Response:
    return await submit_form(request, caller, "compare", _parse, form)


def _parse(values: Mapping[str, str], target: ReviewTarget | None, t: Translator) -> PreferenceBody | fields.Errors:
    assert target is not None, "nothing can be pasted into a comparison"
    better = values.get("better")
    if better not in ("first", "second", "tie", "both_bad"):
        return {"better": t("choose_one")}
    first = target.shown_first or "a"
    side = {"first": first, "second": "b" if first == "a" else "a", "tie": "tie"}
    axes = {name: side.get(place) for name, place in fields.axis_fields(values)}
    flagged = [side[place] for place in ("first", "second") if values.get(f"critical_{place}") == "yes"]
    response_a, response_b = target.in_store_order
    body = {
        "prompt": target.question, "response_a": response_a, "response_b": response_b, "preferred": side.get(better, better),
        "critical": flagged, "shown_first": target.shown_first, "axes": {name: value for name, value in axes.items() if value},
        "comments": fields.text_field(values, "comments"), "consent": fields.consent_field(values),
        "trace_id": target.trace_id, "supersedes": target.supersedes, "model_a": target.models[0], "model_b": target.models[1],
    }  # fmt: skip
    return fields.validated(PreferenceBody, body, t)
