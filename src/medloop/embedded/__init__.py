"""The embedded model: a table of conditions, a corpus made from it, and the small model trained on that corpus."""
