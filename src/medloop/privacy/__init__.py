"""What leaves the house is scrubbed first: identifiers of patients and staff become placeholders."""
