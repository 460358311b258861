"""Files that survive a crash: atomic writes, sealed folders, JSON Lines, locks, spreadsheets."""
