"""Defences against prompt injection: text that addresses the grader is removed before grading."""
