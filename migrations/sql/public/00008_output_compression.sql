-- +goose Up
-- What an agent says in one event may have 16 MiB, and Postgres' own compression takes
-- a second or more for that. LZ4 takes a quarter of the time, where the server has it.
-- +goose StatementBegin
DO $$
BEGIN
    ALTER TABLE output ALTER COLUMN data SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    RAISE NOTICE 'this server has no LZ4: output is compressed more slowly';
END
$$;
-- +goose StatementEnd
