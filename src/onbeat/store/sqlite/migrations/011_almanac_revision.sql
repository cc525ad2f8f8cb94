-- Grows with each change of a calendar or a blackout, in its transaction: whoever keeps them in memory looks here.
ALTER TABLE meta ADD COLUMN almanac_revision INTEGER NOT NULL DEFAULT 0;
