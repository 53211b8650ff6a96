"""The methods of the API, one class for each resource."""
