-- Schema 6 makes the process that made an attempt a part of its identity, and keeps how often
-- the message had been received then.
CREATE TABLE attempts_6 (
  seq           INTEGER PRIMARY KEY,
  message_id    TEXT    NOT NULL,
  queue         TEXT    NOT NULL,
  day           INTEGER NOT NULL,
  webhook_id    TEXT    NOT NULL,
  generation    INTEGER NOT NULL,
  number        INTEGER NOT NULL,
  inserted_at   INTEGER NOT NULL,
  started_at    INTEGER NOT NULL,
  duration_ns   INTEGER NOT NULL,
  status        INTEGER NOT NULL,
  error_class   TEXT    NOT NULL,
  error         TEXT    NOT NULL,
  snippet       TEXT    NOT NULL,
  retry_after   TEXT    NOT NULL,
  redirect_host TEXT    NOT NULL,
  redials       INTEGER NOT NULL,
  action        TEXT    NOT NULL,
  reason        TEXT    NOT NULL,
  charged       INTEGER NOT NULL,
  delay_ns      INTEGER NOT NULL,
  next_at       INTEGER NOT NULL,
  explanation   TEXT    NOT NULL,
  instance      TEXT    NOT NULL,
  dequeue_count INTEGER NOT NULL,
  UNIQUE (message_id, queue, day, webhook_id, generation, number, instance)
) STRICT;
INSERT INTO attempts_6 (seq, message_id, queue, day, webhook_id, generation, number, inserted_at, started_at, duration_ns, status, error_class, error,
  snippet, retry_after, redirect_host, redials, action, reason, charged, delay_ns, next_at, explanation, instance, dequeue_count)
SELECT seq, message_id, queue, day, webhook_id, generation, number, inserted_at, started_at, duration_ns, status, error_class, error,
  snippet, retry_after, redirect_host, redials, action, reason, charged, delay_ns, next_at, explanation, instance, 0 FROM attempts;
DROP TABLE attempts;
ALTER TABLE attempts_6 RENAME TO attempts;
CREATE INDEX attempts_day ON attempts (day);
CREATE INDEX attempts_started ON attempts (started_at);
CREATE INDEX attempts_webhook ON attempts (webhook_id, started_at);
