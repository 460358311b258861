"""Erase a person's records from the store and from every file, and write the proof."""
