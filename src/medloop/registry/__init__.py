"""The registry of models: versions with their history, aliases that say which one is in use, and a mirror of it in MLflow."""
