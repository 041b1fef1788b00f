"""The studio: HTTP routes and a page over the same functions as the command line. Parse, call the api, serialise."""
