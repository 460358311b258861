"""Fakes and factories that tests and users share."""
