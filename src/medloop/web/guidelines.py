"""The guidelines for raters beside every form: what an admin wrote (pages/guidelines.py), else the built-in text."""

from pathlib import Path

from medloop.store.db import Store
from medloop.store.records.guidelines import newest
from medloop.web.words import Language


def read_guidelines(store: Store, language: Language) -> str:
    own = newest(store, language)
    return own.text if own is not None and own.text else built_in(language)


def built_in(language: Language) -> str:
    return (Path(__file__).parent / "words" / f"guidelines.{language}.md").read_text(encoding="utf-8")
