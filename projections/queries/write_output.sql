-- name: InsertOutput :copyfrom
INSERT INTO output (seq, epoch, tenant, session, run, first_k, last_k, after_n, data, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: LastOutputK :one
SELECT coalesce(max(last_k), 0)::bigint FROM output WHERE tenant = $1 AND session = $2 AND run = $3;

-- name: DeleteOutputBefore :many
DELETE FROM output WHERE seq IN (SELECT o.seq FROM output o WHERE o.at < @before ORDER BY o.seq LIMIT @most)
RETURNING tenant, session, seq;

-- name: RaiseOutputFloors :exec
INSERT INTO output_floor (tenant, session, seq)
SELECT unnest(@tenants::text[]), unnest(@sessions::text[]), unnest(@seqs::bigint[])
ON CONFLICT (tenant, session) DO UPDATE SET seq = greatest(output_floor.seq, excluded.seq);

-- name: DropOutput :exec
DELETE FROM output;

-- name: DropOutputFloors :exec
DELETE FROM output_floor;
