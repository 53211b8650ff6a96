"""Offers: experiences, their departures, holds of seats, and the catalogue file."""
