"""The HTTP API: `create_app(settings)`. Handlers parse a request, call a stage and respond; nothing here imports torch."""
