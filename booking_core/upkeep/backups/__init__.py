"""Backups of a live database in one file, and their restoration.

On SQLite the file is a database, copied by the online backup API; on PostgreSQL it is an archive of `pg_dump` in its
custom format. Neither holds a secret key. A backup is checked before it takes its name, and again before it replaces
anything.
"""

from booking_core.upkeep.backups.errors import BackupError
from booking_core.upkeep.backups.service import Backup, create, restore
