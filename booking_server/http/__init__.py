"""HTTP/1.1 below the application: message framing, and the protocol class that uvicorn runs for each connection."""
