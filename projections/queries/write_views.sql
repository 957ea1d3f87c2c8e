-- name: UpsertSessions :exec
INSERT INTO sessions (tenant, id, owner, runtime, revision, phase, desired, outcome, cause, waiting, generation,
    isolation, run, labels, view, redact, unsettled, created_at, updated_at, n, seq)
SELECT unnest(@tenants::text[]), unnest(@ids::text[]), unnest(@owners::text[]), unnest(@runtimes::text[]),
    unnest(@revisions::bigint[]), unnest(@phases::text[]), unnest(@desired::text[]), unnest(@outcomes::text[]),
    unnest(@causes::text[]), unnest(@waiting::integer[]), unnest(@generations::bigint[]), unnest(@isolations::text[]),
    unnest(@runs::text[]), unnest(@labels::text[])::jsonb, unnest(@views::text[])::json, unnest(@redacts::text[])::json,
    string_to_array(unnest(@unsettled::text[]), ','), unnest(@created_at::timestamptz[]),
    unnest(@updated_at::timestamptz[]), unnest(@ns::bigint[]), unnest(@seqs::bigint[])
ON CONFLICT (tenant, id) DO UPDATE SET
    owner = excluded.owner, runtime = excluded.runtime, revision = excluded.revision, phase = excluded.phase,
    desired = excluded.desired, outcome = excluded.outcome, cause = excluded.cause, waiting = excluded.waiting,
    generation = excluded.generation, isolation = excluded.isolation, run = excluded.run, labels = excluded.labels,
    view = excluded.view, redact = excluded.redact, unsettled = excluded.unsettled, created_at = excluded.created_at,
    updated_at = excluded.updated_at, n = excluded.n, seq = excluded.seq;

-- name: DeleteDeadlines :exec
DELETE FROM deadlines d USING (SELECT unnest(@tenants::text[]) AS tenant, unnest(@sessions::text[]) AS session) AS gone
WHERE d.tenant = gone.tenant AND d.session = gone.session;

-- name: InsertDeadlines :exec
INSERT INTO deadlines (tenant, session, kind, key, service, due_at)
SELECT unnest(@tenants::text[]), unnest(@sessions::text[]), unnest(@kinds::text[]), unnest(@keys::text[]),
    unnest(@services::text[]), unnest(@due_at::timestamptz[])
ON CONFLICT (tenant, session, kind, key) DO NOTHING;

-- name: UpsertWorkloads :exec
INSERT INTO workloads (tenant, session, generation, state, sandbox_uid, pod_uid, path, isolation, restarts, layers,
    cause, claim_requested_at, claimed_at, ready_at, released_at, n)
SELECT unnest(@tenants::text[]), unnest(@sessions::text[]), unnest(@generations::bigint[]), unnest(@states::text[]),
    unnest(@sandbox_uids::text[]), unnest(@pod_uids::text[]), unnest(@paths::text[]), unnest(@isolations::text[]),
    unnest(@restarts::integer[]), unnest(@layers::text[])::jsonb, unnest(@causes::text[]),
    unnest(@claim_requested_at::timestamptz[]), nullif(unnest(@claimed_at::timestamptz[]), '0001-01-01 00:00:00+00'::timestamptz),
    nullif(unnest(@ready_at::timestamptz[]), '0001-01-01 00:00:00+00'::timestamptz),
    nullif(unnest(@released_at::timestamptz[]), '0001-01-01 00:00:00+00'::timestamptz), unnest(@ns::bigint[])
ON CONFLICT (tenant, session, generation) DO UPDATE SET
    state = excluded.state, sandbox_uid = excluded.sandbox_uid, pod_uid = excluded.pod_uid, path = excluded.path,
    isolation = excluded.isolation, restarts = excluded.restarts, layers = excluded.layers, cause = excluded.cause,
    claimed_at = excluded.claimed_at, ready_at = excluded.ready_at, released_at = excluded.released_at, n = excluded.n;

-- name: UpsertRuns :exec
INSERT INTO runs (tenant, session, id, parent, state, requester, instance, last_k, cause, detail, calls, queued_at, started_at, ended_at, n)
SELECT unnest(@tenants::text[]), unnest(@sessions::text[]), unnest(@ids::text[]), unnest(@parents::text[]),
    unnest(@states::text[]), unnest(@requesters::text[]), unnest(@instances::text[]), unnest(@last_ks::bigint[]),
    unnest(@causes::text[]), unnest(@details::text[]), unnest(@calls::text[])::json, unnest(@queued_at::timestamptz[]),
    nullif(unnest(@started_at::timestamptz[]), '0001-01-01 00:00:00+00'::timestamptz),
    nullif(unnest(@ended_at::timestamptz[]), '0001-01-01 00:00:00+00'::timestamptz), unnest(@ns::bigint[])
ON CONFLICT (tenant, session, id) DO UPDATE SET
    parent = excluded.parent, state = excluded.state, requester = excluded.requester, instance = excluded.instance,
    last_k = excluded.last_k, cause = excluded.cause, detail = excluded.detail, calls = excluded.calls, started_at = excluded.started_at,
    ended_at = excluded.ended_at, n = excluded.n;

-- name: InsertMessages :exec
INSERT INTO messages (tenant, session, id, run, view, at, n)
SELECT unnest(@tenants::text[]), unnest(@sessions::text[]), unnest(@ids::text[]), unnest(@runs::text[]),
    unnest(@views::text[])::json, unnest(@at::timestamptz[]), unnest(@ns::bigint[])
ON CONFLICT (tenant, session, id) DO NOTHING;

-- name: UpsertCalls :exec
INSERT INTO calls (tenant, session, id, agent_call_id, run, tool, args, args_hash, state, decision, rule, policy,
    revision, enforcement, started_at, completed_at, exit_code, result, n)
SELECT unnest(@tenants::text[]), unnest(@sessions::text[]), unnest(@ids::text[]), unnest(@agent_call_ids::text[]),
    unnest(@runs::text[]), unnest(@tools::text[]), unnest(@args::text[])::json, unnest(@args_hashes::text[]),
    unnest(@states::text[]), unnest(@decisions::text[]), unnest(@rules::text[]), unnest(@policies::text[]),
    unnest(@revisions::bigint[]), unnest(@enforcements::text[]),
    nullif(unnest(@started_at::timestamptz[]), '0001-01-01 00:00:00+00'::timestamptz),
    nullif(unnest(@completed_at::timestamptz[]), '0001-01-01 00:00:00+00'::timestamptz),
    nullif(unnest(@exit_codes::text[]), '')::integer, nullif(unnest(@results::text[]), '')::json, unnest(@ns::bigint[])
ON CONFLICT (tenant, session, id) DO UPDATE SET
    state = excluded.state, decision = excluded.decision, rule = excluded.rule, policy = excluded.policy,
    revision = excluded.revision, enforcement = excluded.enforcement, started_at = excluded.started_at,
    completed_at = excluded.completed_at, exit_code = excluded.exit_code, result = excluded.result, n = excluded.n;

-- name: UpsertApprovals :exec
INSERT INTO approvals (tenant, session, id, state, requester, deadline, asked_at, decided_by, decided_at, reason, view, n)
SELECT unnest(@tenants::text[]), unnest(@sessions::text[]), unnest(@ids::text[]), unnest(@states::text[]),
    unnest(@requesters::text[]), nullif(unnest(@deadlines::timestamptz[]), '0001-01-01 00:00:00+00'::timestamptz),
    unnest(@asked_at::timestamptz[]), unnest(@decided_by::text[]),
    nullif(unnest(@decided_at::timestamptz[]), '0001-01-01 00:00:00+00'::timestamptz), unnest(@reasons::text[]),
    unnest(@views::text[])::json, unnest(@ns::bigint[])
ON CONFLICT (tenant, session, id) DO UPDATE SET
    state = excluded.state, deadline = excluded.deadline, decided_by = excluded.decided_by,
    decided_at = excluded.decided_at, reason = excluded.reason, view = excluded.view, n = excluded.n;

-- name: RetireRuntime :exec
UPDATE runtimes SET latest = false WHERE tenant = $1 AND name = $2 AND latest;

-- name: InsertRuntime :exec
INSERT INTO runtimes (tenant, name, revision, latest, spec, removed, applied_by, at, n, seq)
VALUES ($1, $2, $3, true, $4, $5, $6, $7, $8, $9);

-- name: RetirePolicy :exec
UPDATE policies SET latest = false WHERE tenant = $1 AND name = $2 AND latest;

-- name: InsertPolicy :exec
INSERT INTO policies (tenant, name, revision, latest, spec, removed, applied_by, at, n, seq)
VALUES ($1, $2, $3, true, $4, $5, $6, $7, $8, $9);
