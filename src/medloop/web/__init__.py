"""The web pages: server-rendered HTML in English and Chinese, with one small script.

app           the API with the pages
pages/        one file per page: its routes and what only it needs
review/       what the pages for judging answers share: what is judged, the form, sending it
markdown      answers as safe HTML, with their reasoning apart
guidelines    what raters are asked to look at, from the workspace or built in
render        a page as HTML, autoescaped, in the reader's language
templates/    one file per page; layout, fields and review are shared
words/        the texts of each page in both languages
static/       tokens.css (colours, spacing, type), style.css, app.js, focus.js (hotkeys, drafts, the next item), time.js
error_page    what a browser sees when a request fails
"""
