"""The data layer: tables, connections, transactions and keyset pagination, on SQLite and on PostgreSQL."""
