"""Measured quality: rules over answers, comparisons between models, the weekly inspection, the reward-hacking panel."""
