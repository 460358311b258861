"""The review queue: what to ask raters next, and when an item is settled."""
