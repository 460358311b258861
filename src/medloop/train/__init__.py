"""Training: SFT now; reward model, DPO, KTO, PPO, GRPO, IRS beside it. One file per method, checkpoints shared."""

import medloop.models  # noqa: F401  (sets what torch reads at its import, so it comes first)
