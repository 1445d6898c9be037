-- Schema 8 keeps jobs that go on in the background.
CREATE TABLE jobs (
  id   TEXT PRIMARY KEY,
  etag TEXT NOT NULL,
  job  TEXT NOT NULL
) STRICT;
