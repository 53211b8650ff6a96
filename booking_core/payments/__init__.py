"""Card money: payments and the refunds that are owed."""
