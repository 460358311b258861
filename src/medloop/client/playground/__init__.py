"""The playground: a page of Gradio in an environment of its own, which knows medloop only over HTTP.

`page.py` and `calls.py` run there and import nothing of medloop; `cli/playground.py` starts them.
"""
