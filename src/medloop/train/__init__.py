"""Training: SFT now; reward model, DPO, KTO, PPO, GRPO, IRS beside it. One file per method, checkpoints shared."""
