-- Schema 13 keeps a longer text apart from the row of its message. What older versions stored
-- stays where it is; they don't find the column, rather than take such a message for empty.
ALTER TABLE messages RENAME COLUMN text TO short_text;
CREATE TABLE texts (
  seq  INTEGER PRIMARY KEY,
  text BLOB NOT NULL
) STRICT;
CREATE TRIGGER messages_gone AFTER DELETE ON messages WHEN length(old.short_text) = 0 BEGIN
  DELETE FROM texts WHERE seq = old.seq;
END;
