-- Schema 14 keeps which webhooks were deleted through pushlease, so that every process tells them
-- from those that another program has deleted.
CREATE TABLE deleted_webhooks (
  id TEXT PRIMARY KEY NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
