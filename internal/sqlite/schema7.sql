-- Schema 7 adds the rate that was learned to the health of webhooks.
ALTER TABLE health ADD COLUMN pace_milli   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE health ADD COLUMN pace_since   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE health ADD COLUMN pace_refused INTEGER NOT NULL DEFAULT 0;
