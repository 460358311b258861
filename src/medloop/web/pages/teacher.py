"""What the teacher was asked and what it cost, by day, model and template, from its log. Numbers only; the log has no text."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from medloop.api.deps import settings_of
from medloop.api.policy import Caller, allow
from medloop.teacher.usage import by_job, totals
from medloop.web.render import show

router = APIRouter(prefix="/web", include_in_schema=False)

UsageReader = Annotated[Caller, Depends(allow("engineer", "auditor", "admin", scope="jobs"))]
MOST = 200  # rows, newest days first; jobs by when they asked last


@router.get("/teacher")
def teacher_page(request: Request, caller: UsageReader) -> Response:
    folder = settings_of(request).workspace.logs / "deepseek_teacher"
    damaged: list[str] = []
    lines = totals(folder, damaged)
    newest = sorted(lines, key=lambda line: (line.day, line.model, line.template), reverse=True)
    days: dict[str, list[float]] = {}
    for line in newest:
        day = days.setdefault(line.day, [0, 0, 0.0])
        day[:] = [day[0] + line.requests, day[1] + line.prompt_tokens + line.completion_tokens, day[2] + line.usd]
    jobs = sorted(by_job(folder).items(), key=lambda job: (job[1].last, job[0]), reverse=True)[:MOST]
    sums = {name: sum(getattr(line, name) for line in lines) for name in ("requests", "failed", "usd")}
    return show(request, caller, "teacher.html", rows=newest[:MOST], sums=sums, days=days, jobs=jobs, damaged=damaged)
