"""`/widget.js` and the one address that it sends to: feedback about answers, from pages of other origins.

A key for a page is public, so it may do nothing else: it has the scope `widget` alone, it names answers by ids that nobody can
guess, and a browser is served only on the pages of `gateway.widget_origins` (request_filter.py answers their preflights).
"""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field, model_validator

from medloop.api.deps import check_rate, writer_of
from medloop.api.json_route import JsonRoute
from medloop.api.policy import Caller, ForbiddenError, allow
from medloop.api.routes.chat import gateway_of
from medloop.api.routes.feedback import REFUSED, Key, StoredOut, sender
from medloop.feedback.submit import submit
from medloop.feedback.submit.bodies import BodyText, FeedbackBody, Flag, Id, StrictBody

router = APIRouter(prefix="/api/v1", tags=["assistant"], route_class=JsonRoute)

PageKey = Annotated[Caller, Depends(allow("clinician", "engineer", "admin", scope="widget"))]
NARROW = "Make one that may do nothing else: medloop api keys new NAME --scope widget"


class WidgetBody(StrictBody):
    """A verdict on one answer: a thumb, a comment, a correction, the flag for harm; at least one of them."""

    inference_id: Id = Field(description="The header X-Medloop-Inference of the answer.")
    thumb: Literal["up", "down"] | None = None
    comments: BodyText | None = None
    golden: BodyText | None = None
    critical: Flag = False
    supersedes: Id | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "WidgetBody":
        if self.thumb is None and self.comments is None and self.golden is None and not self.critical:
            raise ValueError("send at least one of thumb, comments, golden, critical")
        return self


@router.post("/widget/feedback", status_code=201, response_model=StoredOut, responses=REFUSED)
async def widget_feedback(body: WidgetBody, request: Request, caller: PageKey, key: Key = None) -> Response:
    """Feedback about one answer, from a page of an allowed origin."""
    check_rate(request, caller)
    if request.headers.get("origin") and caller.scopes != {"widget"}:
        raise ForbiddenError("This key may do more than send feedback, and everybody can read it on a page", NARROW)
    await gateway_of(request).traces.ensure(body.inference_id)
    given = body.model_dump(exclude={"inference_id"}, exclude_none=True)
    feedback = FeedbackBody(trace_id=body.inference_id, **given)
    writer = writer_of(request)
    stored = await writer.submit(submit.prepare_submission(writer.store, feedback, sender(caller), key=key))
    answer = {name: value for name, value in stored.answer.items() if name in ("feedback_id", "timestamp", "quarantined")}
    return JSONResponse(answer, status_code=200 if stored.replayed else 201)
