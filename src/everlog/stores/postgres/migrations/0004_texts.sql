-- What rows that views keep are found by: words, as they are, without the opinions of a dictionary. Columns of the same
-- table, so that a row and its text are one, and whoever may keep views may keep these.
ALTER TABLE derived
    ADD COLUMN part  text COLLATE "C",
    ADD COLUMN title tsvector,
    ADD COLUMN body  tsvector;
CREATE INDEX derived_by_title ON derived USING gin (title) WHERE title IS NOT NULL;
CREATE INDEX derived_by_words ON derived USING gin ((title || body)) WHERE title IS NOT NULL;
