"""The settings of each trainer. No torch, so that a request can be checked where torch is not installed."""
