-- name: Checkpoint :one
SELECT epoch, seq, hash FROM checkpoint WHERE name = $1;

-- name: StartCheckpoint :exec
INSERT INTO checkpoint (name, epoch, seq, hash, updated_at) VALUES ($1, $2, 0, '', now())
ON CONFLICT (name) DO NOTHING;

-- The fence: a projector whose place is not the stored one any more changes no
-- row here and so writes nothing.
-- name: MoveCheckpoint :execrows
UPDATE checkpoint SET seq = @seq, hash = @hash, updated_at = now()
WHERE name = @name AND seq = @old_seq AND epoch = @epoch;

-- name: OutputCheckpoint :one
SELECT epoch, seq, hash FROM output_checkpoint WHERE name = $1;

-- name: StartOutputCheckpoint :exec
INSERT INTO output_checkpoint (name, epoch, seq, hash, updated_at) VALUES ($1, $2, 0, '', now())
ON CONFLICT (name) DO NOTHING;

-- name: MoveOutputCheckpoint :execrows
UPDATE output_checkpoint SET seq = @seq, hash = @hash, updated_at = now()
WHERE name = @name AND seq = @old_seq AND epoch = @epoch;

-- name: ResetOutputCheckpoint :exec
UPDATE output_checkpoint SET seq = 0, hash = '', epoch = @epoch, updated_at = now() WHERE name = @name;

-- On a channel of the schema: what a rebuild has, the live read models may lack.
-- name: Announce :exec
SELECT pg_notify('holdfast_projected_' || current_schema(), @payload::text);
