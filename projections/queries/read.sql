-- name: Envelopes :many
SELECT e.seq, e.subject, e.raw FROM envelopes e
WHERE e.subject = @subject AND EXISTS (SELECT FROM checkpoint c WHERE c.name = @checkpoint AND c.epoch = @epoch)
ORDER BY e.seq;

-- name: EnvelopesUpToN :many
SELECT seq, subject, raw FROM envelopes WHERE subject = @subject AND n <= @n ORDER BY seq;

-- name: EnvelopesUpToTime :many
SELECT seq, subject, raw FROM envelopes WHERE subject = @subject AND at <= @at ORDER BY seq;

-- name: Sessions :many
SELECT view, created_at, id FROM sessions
WHERE tenant = @tenant
  AND (cardinality(@phases::text[]) = 0 OR phase = ANY (@phases::text[]))
  AND labels @> @labels
  AND (@runtime::text = '' OR runtime = @runtime)
  AND (@owner::text = '' OR owner = @owner)
  AND (NOT @waiting::boolean OR waiting > 0)
  AND (created_at, id) < (@before_at::timestamptz, @before_id::text)
ORDER BY created_at DESC, id DESC
LIMIT @most;

-- name: Session :one
SELECT view FROM sessions WHERE tenant = $1 AND id = $2;

-- name: Redact :one
SELECT redact FROM sessions WHERE tenant = $1 AND id = $2;

-- Rows with contents of up to many megabytes are read up to a number of bytes, the
-- first always; found says how many there are up to @most. What is asked for its size
-- isn't read for it: json that may be large is kept uncompressed, and octet_length of a
-- bytea looks at its head alone.
--
-- name: Messages :many
SELECT view, n, found FROM (
    SELECT view, n, count(*) OVER () AS found, sum(pg_column_size(view)) OVER (ORDER BY n) - pg_column_size(view) AS before
    FROM (SELECT view, n FROM messages WHERE tenant = @tenant AND session = @session AND n > @after ORDER BY n LIMIT @most) AS r
) AS sized WHERE before < @bytes::bigint ORDER BY n;

-- name: Runs :many
SELECT id, parent, state, requester, cause, detail, calls, queued_at, started_at, ended_at, n FROM runs
WHERE tenant = @tenant AND session = @session AND (queued_at, id) > (@after_at::timestamptz, @after_id::text)
ORDER BY queued_at, id LIMIT @most;

-- name: Timeline :many
SELECT n, kind, data, at, found FROM (
    SELECT n, kind, data, at, count(*) OVER () AS found, sum(pg_column_size(data)) OVER (ORDER BY n) - pg_column_size(data) AS before
    FROM (SELECT n, kind, data, at FROM timeline WHERE tenant = @tenant AND session = @session AND n > @after ORDER BY n LIMIT @most) AS r
) AS sized WHERE before < @bytes::bigint ORDER BY n;

-- name: Output :many
SELECT seq, run, first_k, last_k, after_n, data, at, found FROM (
    SELECT *, count(*) OVER () AS found, sum(octet_length(data)) OVER (ORDER BY seq) - octet_length(data) AS before
    FROM (
        SELECT seq, run, first_k, last_k, after_n, data, at FROM output
        WHERE tenant = @tenant AND session = @session AND epoch = @epoch AND seq > @after ORDER BY seq LIMIT @most
    ) AS r
) AS sized WHERE before < @bytes::bigint ORDER BY seq;

-- Backwards, so that it passes over what came since and nothing else.
--
-- name: OutputBehind :one
SELECT coalesce((
    SELECT seq FROM output WHERE tenant = @tenant AND session = @session AND epoch = @epoch AND after_n <= @n::bigint ORDER BY seq DESC LIMIT 1
), 0)::bigint;

-- name: OutputFloor :one
SELECT coalesce(max(seq), 0)::bigint FROM output_floor
WHERE tenant = @tenant AND session = @session OR tenant = '' AND session = '';

-- The inbox: what is pending, the nearest deadline first.
-- name: PendingApprovals :many
SELECT view, due, id, found FROM (
    SELECT view, due, id, count(*) OVER () AS found, sum(pg_column_size(view)) OVER (ORDER BY due, id) - pg_column_size(view) AS before
    FROM (
        SELECT view, coalesce(deadline, '9999-12-31 00:00:00+00')::timestamptz AS due, id FROM approvals
        WHERE tenant = @tenant AND state = 'pending'
          AND (@session::text = '' OR session = @session)
          AND (coalesce(deadline, '9999-12-31 00:00:00+00'), id) > (@after_at::timestamptz, @after_id::text)
        ORDER BY coalesce(deadline, '9999-12-31 00:00:00+00'), id
        LIMIT @most
    ) AS r
) AS sized WHERE before < @bytes::bigint ORDER BY due, id;

-- name: Approvals :many
SELECT view, asked_at, id, found FROM (
    SELECT view, asked_at, id, count(*) OVER () AS found,
        sum(pg_column_size(view)) OVER (ORDER BY asked_at DESC, id DESC) - pg_column_size(view) AS before
    FROM (
        SELECT view, asked_at, id FROM approvals
        WHERE tenant = @tenant
          AND (cardinality(@states::text[]) = 0 OR state = ANY (@states::text[]))
          AND (@session::text = '' OR session = @session)
          AND (asked_at, id) < (@before_at::timestamptz, @before_id::text)
        ORDER BY asked_at DESC, id DESC
        LIMIT @most
    ) AS r
) AS sized WHERE before < @bytes::bigint ORDER BY asked_at DESC, id DESC;

-- name: Approval :one
SELECT view FROM approvals WHERE tenant = $1 AND session = $2 AND id = $3;

-- name: Runtimes :many
SELECT name, revision, spec, applied_by, at, seq FROM runtimes
WHERE tenant = @tenant AND latest AND NOT removed AND name > @after ORDER BY name LIMIT @most;

-- name: RuntimeNames :many
SELECT tenant, name FROM runtimes WHERE latest AND NOT removed ORDER BY tenant, name;

-- name: Runtime :one
SELECT name, revision, spec, applied_by, at, seq FROM runtimes
WHERE tenant = @tenant AND name = @name AND NOT removed AND (revision = @revision OR @revision = 0::bigint AND latest);

-- name: Policies :many
SELECT name, revision, spec, applied_by, at, seq FROM policies
WHERE tenant = @tenant AND latest AND NOT removed AND name > @after ORDER BY name LIMIT @most;

-- name: Policy :one
SELECT name, revision, spec, applied_by, at, seq FROM policies
WHERE tenant = @tenant AND name = @name AND NOT removed AND (revision = @revision OR @revision = 0::bigint AND latest);

-- name: Audit :many
SELECT a.seq, a.idx, e.subject, e.raw, coalesce(s.redact::text, '[]')::text AS redact FROM audit a
JOIN envelopes e ON e.seq = a.seq
LEFT JOIN sessions s ON a.aggregate = 'session' AND s.tenant = a.tenant AND s.id = a.key
WHERE a.tenant = @tenant
  AND (@session::text = '' OR a.aggregate = 'session' AND a.key = @session)
  AND (@actor::text = '' OR a.actor = @actor)
  AND (cardinality(@types::text[]) = 0 OR a.type = ANY (@types::text[]))
  AND (sqlc.narg('from_at')::timestamptz IS NULL OR a.at >= sqlc.narg('from_at'))
  AND (sqlc.narg('to_at')::timestamptz IS NULL OR a.at < sqlc.narg('to_at'))
  AND (a.seq, a.idx) < (@before_seq::bigint, @before_idx::smallint)
ORDER BY a.seq DESC, a.idx DESC
LIMIT @most;

-- What the deadlines of a faulted session would do can't be known: they stay, but
-- must not crowd out those that can be acted on.
-- name: Due :many
SELECT d.tenant, d.session, d.kind, d.key, d.service, d.due_at FROM deadlines d
WHERE d.service = @service AND d.due_at <= @now
  AND NOT EXISTS (SELECT FROM faults f WHERE f.aggregate = 'session' AND f.tenant = d.tenant AND f.key = d.session)
  AND EXISTS (SELECT FROM checkpoint c WHERE c.name = @checkpoint AND c.epoch = @epoch)
ORDER BY d.due_at LIMIT @most;

-- name: Unsettled :many
SELECT s.tenant, s.id FROM sessions s
WHERE s.unsettled <> '{}' AND @service::text = ANY (s.unsettled)
  AND (s.tenant, s.id) > (@after_tenant::text, @after_id::text)
ORDER BY s.tenant, s.id LIMIT @most;

-- name: Faults :many
SELECT subject, tenant, aggregate, key, seq, cause FROM faults WHERE tenant = @tenant ORDER BY seq;

-- name: FaultCount :one
SELECT count(*) FROM faults;
