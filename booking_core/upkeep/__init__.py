"""Operations: integrity checks, backups, secret keys, cells and sandboxes."""
