"""Find identifiers in Chinese and English text and replace them with placeholders."""
