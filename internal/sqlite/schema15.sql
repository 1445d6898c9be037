-- Schema 15 keeps what the processes on the file counted, minute by minute and hour by hour.
CREATE TABLE rollups (
  length     INTEGER NOT NULL,
  at         INTEGER NOT NULL,
  instance   TEXT    NOT NULL,
  started_at INTEGER NOT NULL,
  tallies    BLOB    NOT NULL,
  PRIMARY KEY (length, at, instance, started_at)
) STRICT;
