"""`medloop data prepare`: sources become one checked dataset."""
