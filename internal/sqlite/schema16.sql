-- Schema 16 keeps of which queue a webhook is beside how it does: when its registration is gone, that tells which
-- messages wait for it.
ALTER TABLE health ADD COLUMN queue TEXT NOT NULL DEFAULT '';
