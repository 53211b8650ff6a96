"""The nouns of the API, each with its verbs: what is asked for and what comes back. How, is decided elsewhere."""
