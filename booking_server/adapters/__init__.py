"""Clients of external systems: webhook receivers, mail servers, Stripe."""
