"""One file per stage; each has a `router`."""
