"""The embedded model server: OpenAI's doors and vLLM's adapter doors over one engine with continuous batching."""
