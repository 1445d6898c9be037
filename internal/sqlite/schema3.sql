-- Schema 3 adds the notes about queues that webhooks were deleted from.
CREATE TABLE left_queues (
  queue TEXT PRIMARY KEY NOT NULL,
  at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
