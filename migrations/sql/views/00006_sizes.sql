-- Documents that may have many megabytes are kept as they are: Postgres tells the size of
-- what it has compressed only by reading all of it, and pages are bounded by their bytes.
ALTER TABLE messages ALTER COLUMN view SET STORAGE EXTERNAL;
ALTER TABLE approvals ALTER COLUMN view SET STORAGE EXTERNAL;
ALTER TABLE timeline ALTER COLUMN data SET STORAGE EXTERNAL;
