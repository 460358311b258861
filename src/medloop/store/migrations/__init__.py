"""Alembic migrations, carried inside the package and run by `medloop db upgrade`."""
