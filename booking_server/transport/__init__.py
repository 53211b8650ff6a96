"""HTTP/1.1 below the application: bounds and deadlines around uvicorn's parser, and the admission of requests."""
