"""From files somebody has to data a model may learn from: import, clean, dedupe, split, hold out, check, describe."""
