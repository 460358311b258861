"""One file per group of pages; each has a `router`."""
