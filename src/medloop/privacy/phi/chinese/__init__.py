"""Names, places and hospitals in Chinese text."""
