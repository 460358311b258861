"""The fixture of every test of the gateway."""

from gateway_world import gateway_world

__all__ = ["gateway_world"]
