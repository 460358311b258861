"""Correct an answer: write the one that should have been given, and what was wrong with the old one."""

from collections.abc import Mapping

from fastapi import APIRouter, Request
from fastapi.responses import Response

from medloop.feedback.submit.bodies import CorrectionBody
from medloop.web.markdown import split_reasoning
from medloop.web.render import FormFields
from medloop.web.review import form as fields
from medloop.web.review.flow import Rater, open_form, submit_form
from medloop.web.review.targets import ReviewTarget
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)


@router.get("/correct")
def correct_page(request: Request, caller: Rater, own: bool = False) -> Response:
    return open_form(request, caller, "correct", ("item", "trace", "again"), own)


@router.post("/correct")
async def correct(request: Request, caller: Rater, form: FormFields) -> Response:
    return await submit_form(request, caller, "correct", _parse, form)


def _parse(values: Mapping[str, str], target: ReviewTarget | None, t: Translator) -> CorrectionBody | fields.Errors:
    exchange, golden = fields.exchange_fields(values, target), fields.text_field(values, "golden")
    original: str = target.answers[0] if target else exchange["agent_response"] or ""
    body = {
        "prompt": exchange.get("user_query"), "original": exchange.get("agent_response"), "trace_id": exchange.get("trace_id"),
        "supersedes": exchange.get("supersedes"), "golden": golden,
        "reason": fields.text_field(values, "reason"), "consent": fields.consent_field(values),
    }  # fmt: skip
    errors = fields.missing_texts(values, target, t)
    if golden is None:
        errors["golden"] = t("golden_needed")
    elif _is_unchanged(golden, original):
        errors["golden"] = t("golden_same")
    return errors or fields.validated(CorrectionBody, body, t)


def _is_unchanged(golden: str, original: str) -> bool:
    """Whether it says what the answer said; the button that copies the answer leaves its reasoning out."""
    return golden.split() in (original.split(), split_reasoning(original).text.split())
