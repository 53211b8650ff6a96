-- The statements of replica.py. Transaction ids are compared as 64-bit numbers, which never begin again.

-- name: position (postgresql)
-- Select what the primary shows: its visible transactions, how far its log holds them, its timeline and its cluster.
-- A commit is visible once its record is on the disk, unless commits do not wait for the disk.
SELECT CAST(pg_current_snapshot() AS text),
       CAST(log.lsn AS text),
       substr(pg_walfile_name(log.lsn), 1, 8),
       CAST((SELECT system_identifier FROM pg_control_system()) AS text)
  FROM (SELECT CASE WHEN current_setting('synchronous_commit') = 'off' THEN pg_current_wal_insert_lsn()
                    ELSE pg_current_wal_flush_lsn() END AS lsn) AS log

-- name: state (postgresql)
-- Compare the replica with a position of the primary: whether it is a replica, of that cluster, on that timeline, and
-- has replayed so much.
SELECT pg_is_in_recovery(),
       CAST((SELECT system_identifier FROM pg_control_system()) AS text) = CAST(:system AS text),
       lpad(upper(to_hex((SELECT timeline_id FROM pg_control_checkpoint()))), 8, '0') = CAST(:timeline AS text),
       pg_last_wal_replay_lsn() >= CAST(:lsn AS pg_lsn)

-- name: shown_before (postgresql)
-- Select the transaction id before which the replica shows everything that it knows to be committed.
SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)

-- name: newer (postgresql)
-- Select the transactions that the replica shows and a snapshot of the primary does not. The list of a replica's own
-- snapshot is empty, so that each one is looked up.
SELECT CAST(array_agg(each.id) AS text)
  FROM (SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) AS xmax) AS own,
       LATERAL (SELECT CAST(CAST(xid AS text) AS bigint) AS id
                  FROM pg_snapshot_xip(CAST(:snapshot AS pg_snapshot)) AS xid
                 UNION ALL
                SELECT generate_series(CAST(CAST(pg_snapshot_xmax(CAST(:snapshot AS pg_snapshot)) AS text) AS bigint),
                                       own.xmax - 1)) AS each
 WHERE CASE WHEN each.id < own.xmax THEN pg_xact_status(CAST(CAST(each.id AS text) AS xid8)) = 'committed'
            ELSE false END

-- name: are_visible (postgresql)
-- Select whether the primary shows all of these transactions by now.
SELECT bool_and(pg_visible_in_snapshot(id, pg_current_snapshot())) FROM unnest(CAST(:ids AS xid8[])) AS id
