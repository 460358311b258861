"""The embedded model: a table of conditions, a corpus made from it, and the small model trained on that corpus."""

import medloop.models  # noqa: F401  before torch: it makes idle threads sleep instead of spin
