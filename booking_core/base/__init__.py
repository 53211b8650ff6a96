"""Foundations: errors, time, tokens, context, settings and languages."""
