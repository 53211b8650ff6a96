"""What tests share: an organization to work in, and an application to call."""
