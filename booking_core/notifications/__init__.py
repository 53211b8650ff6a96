"""Mail: what is owed as an effect is written once, and sent until it is accepted."""
