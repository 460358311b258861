"""`python -m medloop` is the same as `medloop`."""

from medloop.cli import main

main()
