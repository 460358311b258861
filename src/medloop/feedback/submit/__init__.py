"""From a request body to rows: checked, scanned for identifiers, ready for the writer."""
