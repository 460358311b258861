"""A release for people: the safety ledger as a page that prints well, and `rl_pipeline.md`."""
