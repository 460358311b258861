"""`python -m medloop` is the same as `medloop`, which imports nothing from the folder where it is called."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from medloop.cli import main

main()
