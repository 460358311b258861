"""Find identifiers in Chinese and English text and replace them with placeholders.

    scrub.py       placeholders, and how far to trust a scrubbed text
    find.py        all finders together
    patterns/      identifiers by their form, numbers.py by their check digits
    english/       a tagger of words, names behind a title or a role, hospitals and towns
    chinese/       a network over characters, names behind a title or a label, addresses and hospitals
    mentions.py    a person who is named again in another form

Each finder lists the situations it recognises in a table with one example each; tests/privacy/phi/test_examples.py runs them all.
"""
