"""`GET /api/v1/lineage`: everything that contains a record, and the records behind a model or release. Ids and counts only."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import OWN_ONLY, Caller, NotFoundError, allow
from medloop.api.routes.feedback_read import ERRORS
from medloop.store.lineage_graph import UnknownSubjectError, lineage_graph, taught_records
from medloop.store.records.users import ROLES

router = APIRouter(prefix="/api/v1/lineage", tags=["lineage"])

Json = dict[str, Any]
LineageReader = Annotated[Caller, Depends(allow(*ROLES, scope="feedback:read"))]
Subject = Annotated[str, Query(max_length=300, min_length=1, description="Id, path, name or hash.")]


@contextmanager
def _reading(request: Request, caller: Caller) -> Iterator[str | None]:
    """Whose records this caller may see, None for everybody's; what is unknown to them is a 404."""
    check_rate(request, caller)
    try:
        yield caller.user_id if caller.role in OWN_ONLY else None
    except UnknownSubjectError as error:
        raise NotFoundError(error.what, error.to_do) from None


@router.get("", responses=ERRORS)
def get_lineage(request: Request, caller: LineageReader, of: Subject) -> Json:
    """The graph around a record, dataset, model, evaluation, gate verdict, registry version or release."""
    with _reading(request, caller) as sender:
        return lineage_graph(store_of(request), of, sender=sender).model_dump(mode="json")


@router.get("/records", responses=ERRORS)
def list_records(
    request: Request,
    caller: LineageReader,
    of: Subject,
    after: Annotated[str, Query(max_length=200, description="The 'next' of the previous page.")] = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Json:
    """The ids of the records behind a dataset, model or release; clinicians and annotators get their own."""
    with _reading(request, caller) as sender:
        return taught_records(store_of(request), of, after=after, limit=limit, sender=sender).model_dump(mode="json")
