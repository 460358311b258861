"""`medloop data build`: feedback becomes training data."""
