-- Schema 17 keeps who changed what, newest first.
CREATE TABLE audits (
  id    TEXT NOT NULL PRIMARY KEY,
  audit TEXT NOT NULL
) STRICT, WITHOUT ROWID;
