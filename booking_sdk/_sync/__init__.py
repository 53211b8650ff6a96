"""The sync client, generated from the async one by `make sync-client`; only `_concurrency` is written by hand."""
