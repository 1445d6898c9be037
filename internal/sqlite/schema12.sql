-- Schema 12 keeps that a webhook refuses every message alike, so that a process that starts
-- knows it.
ALTER TABLE health ADD COLUMN refusing INTEGER NOT NULL DEFAULT 0;
