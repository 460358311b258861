"""Backups of a workspace: `repository` holds encrypted chunks by content, `create` fills it, `databases` dumps and loads both
kinds of database, `extract` writes a backup's files. `loop/restore.py` makes a working workspace of them."""
