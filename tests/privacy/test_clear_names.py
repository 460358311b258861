"""Names that are kept in clear: what may identify somebody is refused."""

import pytest

from medloop.privacy.clear_names import check_name


@pytest.mark.parametrize("name", ["13812345678", "1381234567X", "138-1234-567X", "11010519491231002X", "li@clinic.cn"])
def test_a_number_or_an_address_of_somebody_is_no_name(name: str) -> None:
    with pytest.raises(ValueError, match="of a person"):
        check_name(name)


@pytest.mark.parametrize("name", ["1381234567", "sess_xyz789", "2026-01", "med-assistant-v1-4bfc1002"])
def test_a_name_that_says_nothing_about_anybody_is_kept(name: str) -> None:
    assert check_name(name) == name
