-- Schema 18 keeps whether the last answer of a webhook said that it is sent too much, and how long the windows of its limit last, so that a process
-- that starts knows both.
ALTER TABLE health ADD COLUMN throttles   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE health ADD COLUMN pace_window INTEGER NOT NULL DEFAULT 0;
