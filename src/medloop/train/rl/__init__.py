"""What PPO, GRPO and IRS share: the policy, rollouts, the mathematics, the result."""
