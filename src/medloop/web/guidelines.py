"""The guidelines for raters that stand beside every form: a Markdown file of the workspace, else the built-in text.

`guidelines/en.md` and `guidelines/zh.md` in the workspace take the place of words/guidelines.en.md and .zh.md. They are read for
each page, so a change needs no restart.
"""

from pathlib import Path

from medloop.web.words import Language

FOLDER = "guidelines"  # of the workspace
MAX_BYTES = 64 * 1024  # of a file that stands on every page


def read_guidelines(home: Path, language: Language) -> str:
    """In this language; a file that is too large or not UTF-8 text does not keep anybody from rating."""
    path = home / FOLDER / f"{language}.md"
    try:
        with path.open("rb") as file:
            own = file.read(MAX_BYTES + 1)
        if len(own) <= MAX_BYTES and (text := own.decode("utf-8-sig").strip()):
            return text
    except (OSError, UnicodeDecodeError):
        pass
    return (Path(__file__).parent / "words" / f"guidelines.{language}.md").read_text(encoding="utf-8")
