"""Defences against prompt injection: text that speaks to the grader is removed before grading."""
