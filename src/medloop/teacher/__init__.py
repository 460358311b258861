"""The teacher: a stronger model that judges answers, behind a client that survives what a paid service does."""
