"""The web pages: templates, words in two languages, small ES modules, plots. They render; `api/routes/pages*.py` answer requests.

words       which language, and what each label says there
render      a page as HTML, autoescaped; the static files
forms       what was filled in -> a body for feedback/submit/submit.py, or an error beside each field
history     what became of somebody's records
dashboard   numbers about the feedback as tiles, pictures and tables
"""
