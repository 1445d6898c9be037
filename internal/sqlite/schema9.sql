-- Schema 9 adds the share of refusals that no pace explains, in thousandths.
ALTER TABLE health ADD COLUMN pace_noise INTEGER NOT NULL DEFAULT 0;
