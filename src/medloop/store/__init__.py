"""The only code that touches SQL or writes files."""
