"""The HTTP door: `create_app(settings)`. It parses, calls and answers; it never imports torch."""
