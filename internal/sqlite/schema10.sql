-- Schema 10 keeps what the processes on the file say of themselves.
CREATE TABLE instances (
  name     TEXT PRIMARY KEY,
  instance TEXT NOT NULL
) STRICT;
