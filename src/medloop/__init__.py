"""medloop: the closed loop that turns feedback on a medical LLM assistant into a better, safer assistant."""

__version__ = "0.1.0"
