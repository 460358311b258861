"""Default learning rates by the size of the model."""

from medloop.train.configs.rl_config import GRPOConfig, IRSRunConfig, PPOConfig


def test_a_larger_model_gets_a_smaller_rate_and_a_given_one_stays() -> None:
    for config in (PPOConfig(), GRPOConfig(), IRSRunConfig()):
        tiny, small, large = (config.rate_for(size) for size in (2_000_000, 135_000_000, 1_080_000_000))
        assert tiny > small > large
        assert abs(large - small / 2) < 1e-9, "eight times the size, half the rate"
    assert PPOConfig().rate_for(135_000_000) < GRPOConfig().rate_for(135_000_000), "PPO updates several times on each batch"
    assert GRPOConfig(learning_rate=1e-4).rate_for(10**9) == 1e-4
