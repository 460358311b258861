"""The codebook, the fast loop: a correction becomes a rule that stands in the prompt of the next fitting question (ACE).

similar      texts as vectors without a model: n-grams and the lexicon's concepts, zh and en
reflect      a correction -> a proposed entry, by template or with a model's words
curate       add, update or merge? does it contradict a live entry?
retrieve     the entries that fit a question, within a budget of tokens
trial        answers before and after a change, on the regression set
optimise     a new system prompt from what went wrong
"""
