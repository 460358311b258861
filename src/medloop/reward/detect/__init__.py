"""Detectors: what a question or an answer says, with evidence. They know nothing of rewards."""
