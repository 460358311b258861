"""Experiments on live traffic: champion against challenger, looked at as often as anybody likes."""
