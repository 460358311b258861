"""medloop: the closed loop that turns feedback on a medical LLM assistant into a better, safer assistant."""

import logging

__version__ = "0.1.0"

# Where it is installed, peft imports it, and on a CPU it then advises a further package on every start.
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
