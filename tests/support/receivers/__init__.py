"""Servers that the service calls: receivers of webhooks, mail, Stripe, Redis."""
