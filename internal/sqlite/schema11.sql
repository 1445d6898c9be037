-- Schema 11 lets the row of an attempt be that of its delivery too, where it was the first and
-- completed it: most messages are delivered so, and have one row.
ALTER TABLE attempts ADD COLUMN completed  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN expires_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN encoding   TEXT    NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN size       INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN body_hash  TEXT    NOT NULL DEFAULT '';
