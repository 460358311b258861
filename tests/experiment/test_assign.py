"""Arms by a salted hash: sticky, with the right share, and never moved by a ramp."""

from __future__ import annotations

from medloop.experiment.assign import arm_of, new_salt, unit_of

USERS = [f"sub_{number}" for number in range(20_000)]


def arms(salt: str, enrolled: float = 1.0, split: float = 0.3) -> dict[str, str | None]:
    return {user: arm_of(salt, user=user, episode="e", split=split, enrolled=enrolled) for user in USERS}


def test_a_user_keeps_the_arm_in_every_episode() -> None:
    salt = "5e" * 32
    for user in USERS[:200]:
        drawn = {arm_of(salt, user=user, episode=f"e{n}", split=0.5, enrolled=1.0) for n in range(5)}
        assert len(drawn) == 1


def test_somebody_unknown_is_drawn_by_episode() -> None:
    salt = "5e" * 32
    drawn = [arm_of(salt, user="", episode=f"e{n}", split=0.5, enrolled=1.0) for n in range(200)]
    assert set(drawn) == {"champion", "challenger"} and unit_of("", "e1") == "episode:e1"
    assert drawn == [arm_of(salt, user="", episode=f"e{n}", split=0.5, enrolled=1.0) for n in range(200)]


def test_the_split_is_as_planned_at_every_share() -> None:
    for enrolled in (0.1, 0.5, 1.0):
        drawn = list(arms("0f" * 32, enrolled).values())
        inside = [arm for arm in drawn if arm is not None]
        assert abs(len(inside) / len(drawn) - enrolled) < 0.02
        assert abs(inside.count("challenger") / len(inside) - 0.3) < 0.03


def test_a_ramp_moves_nobody_between_the_arms() -> None:
    before, after = arms("0f" * 32, 0.1), arms("0f" * 32, 0.6)
    assert all(after[user] == arm for user, arm in before.items() if arm is not None)


def test_two_experiments_draw_independently() -> None:
    first, second = arms(new_salt(), split=0.5), arms(new_salt(), split=0.5)
    same = sum(first[user] == second[user] for user in USERS) / len(USERS)
    assert 0.47 < same < 0.53
