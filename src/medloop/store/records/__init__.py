"""The rows of the store by area: who may read them, how they are written, and what becomes of them."""
