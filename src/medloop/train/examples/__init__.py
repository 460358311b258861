"""Training files as token ids: conversations, preference pairs, thumbs."""
