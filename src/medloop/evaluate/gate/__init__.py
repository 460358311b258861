"""The gate's decisions: pure functions from an evaluation report and other evidence to checks with numbers and reasons."""
