"""Suites: each file examines a model in one way. They are named in loop/suites.py."""
