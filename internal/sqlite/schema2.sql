-- Schema 2 adds claims. Only one claim has a key: the one that holds it, or held it
-- last.
CREATE TABLE claims (
  key        TEXT PRIMARY KEY NOT NULL,
  owner      TEXT    NOT NULL,
  state      TEXT    NOT NULL,
  until      INTEGER NOT NULL,
  at         INTEGER NOT NULL,
  message_id TEXT    NOT NULL,
  body_hash  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX claims_at ON claims (at);
