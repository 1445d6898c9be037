-- A file that schema 1 made, with a row in every table. It stays as it is.
PRAGMA application_id = 1886152037;

CREATE TABLE queues (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE messages (
  seq           INTEGER PRIMARY KEY,
  queue         INTEGER NOT NULL,
  visible_at    INTEGER NOT NULL,
  hidden_at     INTEGER NOT NULL,
  receipt       INTEGER NOT NULL,
  dequeue_count INTEGER NOT NULL,
  inserted_at   INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  id            TEXT    NOT NULL,
  text          BLOB    NOT NULL
) STRICT;
CREATE INDEX messages_visible ON messages (queue, visible_at, hidden_at);
CREATE INDEX messages_expiry ON messages (expires_at, queue) WHERE expires_at > 0;

CREATE TABLE deliveries (
  seq              INTEGER PRIMARY KEY,
  message_id       TEXT    NOT NULL,
  queue            TEXT    NOT NULL,
  day              INTEGER NOT NULL,
  webhook_id       TEXT    NOT NULL,
  inserted_at      INTEGER NOT NULL,
  generation       INTEGER NOT NULL,
  state            TEXT    NOT NULL,
  reason           TEXT    NOT NULL,
  attempts         INTEGER NOT NULL,
  charged          INTEGER NOT NULL,
  waits            INTEGER NOT NULL,
  excused          INTEGER NOT NULL,
  missing_records  INTEGER NOT NULL,
  last_status      INTEGER NOT NULL,
  last_error_class TEXT    NOT NULL,
  first_at         INTEGER NOT NULL,
  last_at          INTEGER NOT NULL,
  next_at          INTEGER NOT NULL,
  updated_at       INTEGER NOT NULL,
  expires_at       INTEGER NOT NULL,
  encoding         TEXT    NOT NULL,
  size             INTEGER NOT NULL,
  body_hash        TEXT    NOT NULL,
  dead_letter_id   TEXT    NOT NULL,
  instance         TEXT    NOT NULL,
  UNIQUE (message_id, queue, day, webhook_id)
) STRICT;
CREATE INDEX deliveries_day ON deliveries (day);

CREATE TABLE attempts (
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
  UNIQUE (message_id, queue, day, webhook_id, generation, number)
) STRICT;
CREATE INDEX attempts_day ON attempts (day);
CREATE INDEX attempts_started ON attempts (started_at);
CREATE INDEX attempts_webhook ON attempts (webhook_id, started_at);

CREATE TABLE webhooks (
  id           TEXT PRIMARY KEY NOT NULL,
  etag         TEXT NOT NULL,
  registration TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE dead_letters (
  seq              INTEGER PRIMARY KEY,
  queue            TEXT    NOT NULL,
  place            TEXT    NOT NULL,
  etag             TEXT    NOT NULL,
  message_id       TEXT    NOT NULL,
  message_at       INTEGER NOT NULL,
  webhook_id       TEXT    NOT NULL,
  generation       INTEGER NOT NULL,
  status           TEXT    NOT NULL,
  reason           TEXT    NOT NULL,
  description      TEXT    NOT NULL,
  attempts         INTEGER NOT NULL,
  last_status      INTEGER NOT NULL,
  last_error_class TEXT    NOT NULL,
  first_at         INTEGER NOT NULL,
  last_at          INTEGER NOT NULL,
  dead_lettered_at INTEGER NOT NULL,
  encoding         TEXT    NOT NULL,
  size             INTEGER NOT NULL,
  body_hash        TEXT    NOT NULL,
  dequeue_count    INTEGER NOT NULL,
  inserted_at      INTEGER NOT NULL,
  copied_to_queue  TEXT    NOT NULL,
  replay_token     TEXT    NOT NULL,
  replays          INTEGER NOT NULL,
  replayed_at      INTEGER NOT NULL,
  instance         TEXT    NOT NULL,
  text             BLOB    NOT NULL,
  UNIQUE (queue, place)
) STRICT;
CREATE INDEX dead_letters_place ON dead_letters (place, queue);
PRAGMA user_version = 1;

INSERT INTO queues (id, name) VALUES (1, 'orders');
INSERT INTO messages (queue, visible_at, hidden_at, receipt, dequeue_count, inserted_at, expires_at, id, text)
VALUES (1, 1764000000000, 1764000000000, 1, 2, 1764000000000, 0, 'message-1', CAST('text' AS BLOB));
INSERT INTO deliveries (message_id, queue, day, webhook_id, inserted_at, generation, state, reason, attempts, charged, waits, excused,
  missing_records, last_status, last_error_class, first_at, last_at, next_at, updated_at, expires_at, encoding, size, body_hash,
  dead_letter_id, instance)
VALUES ('message-1', 'orders', 20416, 'wh-1', 1764000000000, 0, 'pending', '', 1, 1, 0, 0, 0, 503, '', 0, 0, 0, 0, 0, 'none', 4, '', '', '');
INSERT INTO attempts (message_id, queue, day, webhook_id, generation, number, inserted_at, started_at, duration_ns, status, error_class,
  error, snippet, retry_after, redirect_host, redials, action, reason, charged, delay_ns, next_at, explanation, instance)
VALUES ('message-1', 'orders', 20416, 'wh-1', 0, 1, 1764000000000, 1764000000000, 0, 503, '', '', '', '', '', 0, 'abandon', '', 1, 0, 0, '', '');
INSERT INTO webhooks (id, etag, registration) VALUES ('wh-1', 'etag-1', '{"id":"wh-1"}');
INSERT INTO dead_letters (queue, place, etag, message_id, message_at, webhook_id, generation, status, reason, description, attempts,
  last_status, last_error_class, first_at, last_at, dead_lettered_at, encoding, size, body_hash, dequeue_count, inserted_at,
  copied_to_queue, replay_token, replays, replayed_at, instance, text)
VALUES ('orders', 'place', 'etag-2', 'message-2', 1764000000000, 'wh-1', 0, 'waiting', '', '', 1, 404, '', 0, 0, 1764000000000, 'none', 4, '',
  1, 1764000000000, '', '', 0, 0, '', CAST('dead' AS BLOB));
