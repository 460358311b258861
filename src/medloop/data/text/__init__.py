"""What one text is: its language, its risk strata, its near-copies, its clean form."""
