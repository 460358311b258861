"""Traces and scores between medloop and other systems: Langfuse, and whatever reads OpenTelemetry."""
