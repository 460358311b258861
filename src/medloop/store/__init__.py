"""The only code that touches SQL or writes files. Import the file you need; importing this package loads nothing.

    db             open_store -> Store (.read(), .write()), upgrade, ensure_master_key
    audit          append, verify, show; audit_trail: the log and the catalog, open while a command works
    catalog        register, newest, find                               which artifacts there are
    crypto, rotate, passwords, check
    files/         atomic, artifacts, jsonl, spreadsheet, lock, workspace_scan
    tables/        one file per area; migrations/: the schema
    records/       crud, audited_read, group_commit, quarantine, review_queue, lineage, consents, erasing, users, ...

All of them promise: a call that returned without an error has written to the disk, and the data survives a kill or a power
cut; a call that did not return has written everything or nothing; damage raises an error that names the place.
"""
