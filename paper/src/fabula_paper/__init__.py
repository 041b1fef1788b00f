"""Every table of the paper beside ours: units of work with a record each, and the report made of the records."""
