"""The models: every version with the gate's verdict, the champion, promoting one or going back after a confirmation."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from medloop.api.deps import check_rate, store_of
from medloop.api.policy import Caller, NotFoundError
from medloop.api.routes.registry import PROMOTERS, Promoter, RegistryReader
from medloop.contracts.registry import Alias, AliasChange
from medloop.errors import InputError
from medloop.privacy.phi.reason import LONGEST_REASON
from medloop.registry import promote as aliases
from medloop.registry.listing import ListedVersion, list_versions
from medloop.registry.register import RegistryOutcome
from medloop.store.db import Store
from medloop.store.records import registry
from medloop.store.records.gates import refusal_parts
from medloop.store.records.registry import NoSuchVersionError, PromotionRefusedError
from medloop.web.gate_words import GateWords, in_words
from medloop.web.people import People
from medloop.web.render import FormFields, redirect, show, translator_of
from medloop.web.told import told
from medloop.web.words import Translator

router = APIRouter(prefix="/web", include_in_schema=False)

ALIASES: tuple[Alias, ...] = ("champion", "challenger")
STEPS = ("promote", "rollback")
MOST_CHANGES = 20


@router.get("/registry")
def registry_page(
    request: Request, caller: RegistryReader, done: Annotated[str, Query(max_length=20)] = "", lag: bool = False
) -> Response:
    t = translator_of(request)
    note = ""
    if done in ALIASES and (holder := aliases.holder(store_of(request), done)):
        note = t("registry_done", version=holder.record.label, alias=t(f"registry_{done}"))
        note = t.sentences(note, t("registry_done_lag")) if lag else note
    return _show(request, caller, note=note)


@router.post("/registry/{step}")
def change(request: Request, caller: Promoter, step: str, form: FormFields) -> Response:
    alias = next((name for name in ALIASES if name == form.get("alias")), None)
    if step not in STEPS or alias is None:
        raise NotFoundError("There is no such step")
    check_rate(request, caller)
    t = translator_of(request)
    if form.get("confirm") != "yes":
        return _show(request, caller, 422, problem=t("registry_not_confirmed"))
    try:
        outcome = _change(store_of(request), step, alias, form, caller.user_id)
    except (InputError, PromotionRefusedError) as error:
        codes = ((PromotionRefusedError, 409), (NoSuchVersionError, 404))
        code = next((code for kind, code in codes if isinstance(error, kind)), 422)
        return _show(request, caller, code, problem=t("registry_not_done"), detail=_detail(error, t))
    return redirect(f"/web/registry?done={alias}" + ("&lag=1" if outcome.lag else ""))


def _detail(error: InputError | PromotionRefusedError, t: Translator) -> GateWords:
    """Why nothing was done, in the language of the page."""
    if isinstance(error, PromotionRefusedError) and error.parts:
        return in_words(error.parts, t)
    if isinstance(error, NoSuchVersionError):
        return GateWords(t("registry_no_such"), t.language)
    return GateWords(t("registry_reason_refused"), t.language)


def _change(store: Store, step: str, alias: Alias, form: dict[str, str], by: str) -> RegistryOutcome:
    reason, number = form.get("reason", ""), form.get("version", "")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise NoSuchVersionError("There is no such version")
    if step == "rollback":
        return aliases.rollback_in(store, actor=by, alias=alias, reason=reason, expected=int(number))
    return aliases.promote_in(store, int(number), actor=by, alias=alias, reason=reason)


def _is_ours(change: AliasChange) -> bool:
    """Whether medloop wrote the reason; the words of a person stay as they are."""
    return change.changed_by == "medloop" or change.reason == "it is the champion now"


def _instead_of(history: Sequence[AliasChange]) -> Callable[[AliasChange], int | None]:
    """The version that a rollback took the alias from; None for other changes."""
    came_from: dict[int, int | None] = {}
    held: dict[Alias, int | None] = {}
    for change in history:
        if change.action == "rollback" and held.get(change.alias) != change.version:
            came_from[id(change)] = held.get(change.alias)
        held[change.alias] = change.version
    return lambda change: came_from.get(id(change))


def _show(
    request: Request, caller: Caller, code: int = 200, *, note: str = "", problem: str = "", detail: GateWords | None = None
) -> Response:  # fmt: skip
    store, t = store_of(request), translator_of(request)

    def refusal_of(row: ListedVersion) -> GateWords:
        return in_words(refusal_parts(store, row.stored.record.artifact) or (), t)

    history = registry.history(store, store.settings.registry.model)
    changes = list(reversed(history))[:MOST_CHANGES]
    versions = list_versions(store)
    context: dict[str, Any] = {"versions": versions, "changes": changes, "aliases": ALIASES, "note": note}
    context["promotable"] = [row for row in versions if "champion" not in row.aliases]
    context |= {"who": People(store, t), "problem": problem, "detail": detail, "refusal_of": refusal_of}
    context["reason"] = lambda change: told(change.reason, t) if _is_ours(change) else GateWords(change.reason, "")
    context["instead_of"] = _instead_of(history)
    context |= {"before": aliases.version_before(store)}
    context |= {"may_promote": caller.role in PROMOTERS, "max_reason": LONGEST_REASON}
    return show(request, caller, "registry.html", code, **context)
