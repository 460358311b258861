"""Names, places and organisations in English text."""
