-- name: InsertEnvelopes :copyfrom
INSERT INTO envelopes (seq, subject, tenant, aggregate, key, n, events, command, at, raw)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: InsertAudit :copyfrom
INSERT INTO audit (seq, idx, tenant, aggregate, key, n, type, service, actor_kind, actor, command, cause, outcome, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14);

-- name: InsertTimeline :copyfrom
INSERT INTO timeline (tenant, session, n, seq, idx, kind, data, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8);

-- name: InsertFault :exec
INSERT INTO faults (subject, tenant, aggregate, key, seq, cause) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (subject) DO NOTHING;

-- name: Faulted :many
SELECT subject FROM faults WHERE subject = ANY (@subjects::text[]);

-- name: GivenUp :many
SELECT subject, seq FROM faults ORDER BY seq;

-- name: DeleteFault :exec
DELETE FROM faults WHERE subject = $1;
