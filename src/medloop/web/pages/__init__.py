"""One file per page: its routes and what only it needs."""
