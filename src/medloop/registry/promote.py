"""Aliases: which version is the champion, which one the challenger, and how one becomes the other.

    champion(settings)                                              # the version in use, or None
    promote(settings, 3, actor=actor())                             # PromotionRefusedError with the gate's reason
    rollback(settings, actor=actor(), reason="worse in triage")     # back to the champion before this one
    demote(settings, "challenger", actor=actor())

A promotion needs a verdict of the gate on exactly these bytes that passed, no open incident and no tainted data; the check is
part of the transaction of the change (store/records/registry.py). The aliases in MLflow follow.
"""

from medloop.contracts.gate_reasons import reason as reason_part
from medloop.contracts.gate_reasons import said
from medloop.contracts.registry import Alias, AliasAction
from medloop.privacy.phi.reason import checked_reason
from medloop.registry.reconcile import reconcile
from medloop.registry.register import RegistryOutcome
from medloop.settings import Settings
from medloop.store.db import Store, open_store
from medloop.store.records import registry
from medloop.store.records.registry import NoSuchVersionError, PromotionRefusedError, StoredVersion


def champion(settings: Settings) -> StoredVersion | None:
    """The version that is in use; None before the first promotion."""
    with open_store(settings) as store:
        return holder(store, "champion")


def holder(store: Store, alias: Alias) -> StoredVersion | None:
    """The version that has an alias now."""
    model = store.settings.registry.model
    change = registry.current(store, model).get(alias)
    return None if change is None or change.version is None else registry.get_version(store, model, change.version)


def promote(
    settings: Settings, version: int, *, actor: str, alias: Alias = "champion", reason: str = ""
) -> RegistryOutcome:  # fmt: skip
    with open_store(settings) as store:
        return promote_in(store, version, actor=actor, alias=alias, reason=reason)


def promote_in(store: Store, version: int, *, actor: str, alias: Alias = "champion", reason: str = "") -> RegistryOutcome:
    """Give an alias to a version, if the gate's records allow it."""
    return _change(store, alias, version, "promote", actor, reason)


def rollback(settings: Settings, *, actor: str, alias: Alias = "champion", reason: str = "") -> RegistryOutcome:
    with open_store(settings) as store:
        return rollback_in(store, actor=actor, alias=alias, reason=reason)


def rollback_in(
    store: Store, *, actor: str, alias: Alias = "champion", reason: str = "", expected: int | None = None
) -> RegistryOutcome:  # fmt: skip
    """Give an alias back to the version that had it before, unless its gate or an erasure speaks against it now.

    With `expected`, only if that is still the version to go back to: somebody has confirmed this one and no other.
    """
    model, before = store.settings.registry.model, version_before(store, alias)
    if expected is not None and before != expected:
        parts = [reason_part("refused_other_before", version=expected)]
        raise PromotionRefusedError(said(parts).rstrip(". "), registry.LIST, parts)
    if before is None:
        now = registry.current(store, model).get(alias)
        what = f"No version of {model} is the {alias}" if now is None else f"No other version has been the {alias} before"
        raise NoSuchVersionError(what, registry.LIST)
    return _change(store, alias, before, "rollback", actor, reason)


def version_before(store: Store, alias: Alias = "champion") -> int | None:
    """The version that a rollback goes to; None where there is no earlier one."""
    changes = registry.history(store, store.settings.registry.model)
    return _held_before([change.version for change in changes if change.alias == alias])


def _held_before(versions: list[int | None]) -> int | None:
    """The version before the present one, as one would undo: going back twice goes back two steps."""
    stack: list[int] = []
    for version in versions:
        if version is None:
            continue
        if version in stack:
            del stack[stack.index(version) :]
        stack.append(version)
    if versions and versions[-1] is None:
        return stack[-1] if stack else None
    return stack[-2] if len(stack) > 1 else None


def demote(settings: Settings, alias: Alias, *, actor: str, reason: str = "") -> str | None:
    with open_store(settings) as store:
        return demote_in(store, alias, actor=actor, reason=reason)


def demote_in(store: Store, alias: Alias, *, actor: str, reason: str = "") -> str | None:
    """Take an alias away; returns why MLflow does not know it yet, None when it does."""
    registry.change_alias(
        store, store.settings.registry.model, alias, None, action="demote", actor=actor, reason=checked_reason(reason)
    )  # fmt: skip
    return reconcile(store)


def _change(store: Store, alias: Alias, version: int, action: AliasAction, actor: str, reason: str) -> RegistryOutcome:
    model = store.settings.registry.model
    registry.change_alias(store, model, alias, version, action=action, actor=actor, reason=checked_reason(reason))
    lag = reconcile(store)
    return RegistryOutcome(registry.get_version(store, model, version), lag)
