"""Call the HTTP API through the SDK: connection, profiles, requests and lists."""
