"""Measured quality: rules over answers, intervals, comparisons between models, a report."""
