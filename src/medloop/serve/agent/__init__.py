"""What the assistant knows and does beside its model: documents it cites, memory of an episode, tools.

documents.py    read PDF, text, Markdown and JSON lines into pages
sections.py     headings of a page; chunks.py: pieces of a page under their headings
library.py      the documents of a workspace: add, list, verify, remove
words.py        words of a text for the search; bm25.py ranks by them
vectors.py      vectors of chunks on the disk, nearest ones by usearch
search.py       both rankings together, and whether anything fits
memory.py       what an episode remembers
tools.py        typed functions that the assistant may call
agent_loop.py   the steps of one answer; agent_graph.py: the same steps in LangGraph
"""
