"""The style sheets: colours, distances and sizes are named once, in tokens.css, and every name is used."""

import re

from medloop.web.static_files import static_files


def text(name: str) -> str:
    return static_files()[name].body.decode()


def test_every_token_that_is_used_is_defined_and_every_defined_one_is_used():
    defined = set(re.findall(r"^\s+(--[a-z0-9-]+):", text("tokens.css"), re.M))
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", text("style.css")))
    inside = set(re.findall(r"var\((--[a-z0-9-]+)\)", text("tokens.css")))
    assert used | inside == defined and len(defined) > 25


def test_no_colour_and_no_font_is_named_outside_the_tokens():
    rules = re.sub(r"/\*.*?\*/", "", text("style.css"), flags=re.S)
    assert not re.findall(r"#[0-9a-f]{3,8}\b|\brgba?\(|\bhsla?\(|font-family: (?!var)", rules)


def test_dark_changes_every_colour_and_nothing_else():
    light, dark = text("tokens.css").split("@media (prefers-color-scheme: dark)")
    colours = set(re.findall(r"(--[a-z-]+): #", light))
    assert colours == set(re.findall(r"(--[a-z-]+):", dark)) and len(colours) > 10


def test_the_scripts_stay_small():
    assert sum(len(file.body) for name, file in static_files().items() if name.endswith(".js")) < 80_000
