"""The only code that touches SQL or writes files. Import the file you need; importing this package loads nothing.

    files       atomic_write, atomic_open, file_sha256
    artifacts   new_artifact, verify_artifact, open_artifact, newest_verified, sweep, folder_sha256
    jsonl       append, write, read
    csv_safe    to_csv, read_csv, guard, unguard                           tables that no spreadsheet runs
    db          open_store -> Store (.read(), .write()), upgrade, ensure_master_key
    records     add, add_in, get, page, iterate, count, mark_processed     Feedback, Preference, Correction, Trace
    catalog     register, newest, find                                     which artifacts there are
    audit       append, verify, show
    crypto      Keyring, load_master_key                                   used by the others
    rotate      rotate, reencrypt, list_keys
    check       check
    tables, migrations                                                     the schema

The promise of all of them: what has returned without an error is on the disk and stays there through a kill or a
power cut; what has not is there whole or not at all; and damage is an error that names the place, never a wrong value.
"""
