-- Schema 5 lets a delivery name the message that had its event before.
ALTER TABLE deliveries ADD COLUMN same_event_as TEXT NOT NULL DEFAULT '';
