"""A changed list needs a new version: scores of two versions must not be taken for the same measure."""

from medloop import lexicon
from medloop.contracts import canonical_json, sha256_id
from medloop.lexicon.load import FILES, read_list

# When this test fails you changed a list: raise lexicon.VERSION and `version` in every file, and add the line it prints.
KNOWN = {
    "1": "sha256:a403f586209311bb13c306e6f4ec085c8d68b131d33fded2c73115219d990d66",
    "2": "sha256:7882af3f6a9eb5967db7384d1ca6e6e7e750369c2c252cc26ce4ad67a25a8a27",
    "3": "sha256:5b962ed098c08949d4574b2a8538d383684accf189171b5c81d54d3372076043",
    "4": "sha256:7bc4974fe3d731e2b47f38f227aa75b6bc8acefb94b561111cb19443d0c76ff9",
    "5": "sha256:46cfbc8d451e3747f140a61c5ac662adc2afa18f245659504d64fdda0ac157e8",
    "6": "sha256:045037c32fbdafbcdc82030ba1e169e35b4d86ad04ac4075706466148f57dc36",
    "7": "sha256:082778bd4ede47d0f897a62785b2f47a3ee4d689fbd179ee4a843d6995d7da26",
    "8": "sha256:13a11365b433700ab90f9d1aad176718a0ea8c31a65ed7904ec363abb65f519f",
    "9": "sha256:d91b14d50bc7d516c8d2a364a71a3d1aabd1cc62b4de28216ad21ae023752822",
    "10": "sha256:9fdd3096771aea973143e57c7593b7433548cd6887d3892c7b67879fb4e07dca",
    "11": "sha256:a68eed2e15ca669d224ec35e8e53f947a6f2d08afa2fd7d77071ef4ea4c0c88b",
    "12": "sha256:657a5bf8e7e9984123ebabd95dba6e4a414bfbf2e823256726ca4ab3c51c32a9",
    "13": "sha256:6509ac140c62d1f4963ef7f06cfa81ac7518ef492d7c350c8a758dfef1b47ee4",
}


def test_the_lists_are_those_of_the_version() -> None:
    content = {name: read_list(name) for name in FILES}
    assert {file["version"] for file in content.values()} == {lexicon.VERSION}
    digest = sha256_id(canonical_json(content))
    assert KNOWN.get(lexicon.VERSION) == digest, f'"{lexicon.VERSION}": "{digest}",'
