"""The cellar: tables, connections, transactions and paging, on SQLite and on PostgreSQL."""
