-- A session and what belongs to its life: deadlines, sandboxes, turns, messages.

CREATE TABLE sessions (
    tenant     text        NOT NULL,
    id         text        NOT NULL,
    owner      text        NOT NULL,
    runtime    text        NOT NULL,
    revision   bigint      NOT NULL, -- of the runtime, pinned at create
    phase      text        NOT NULL, -- derived; the table is in events/session
    desired    text        NOT NULL,
    outcome    text        NOT NULL DEFAULT '',
    cause      text        NOT NULL DEFAULT '',
    waiting    integer     NOT NULL DEFAULT 0, -- calls that wait for a person
    generation bigint      NOT NULL DEFAULT 0,
    isolation  text        NOT NULL DEFAULT '',
    run        text        NOT NULL DEFAULT '', -- the open one
    labels     jsonb       NOT NULL DEFAULT '{}',
    view       json        NOT NULL, -- the Session of the API at n
    redact     json        NOT NULL, -- the runtime's redact paths, pinned at create
    unsettled  text[]      NOT NULL, -- the services for which observed isn't desired: a sweep's work
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    n          bigint      NOT NULL,
    seq        bigint      NOT NULL,
    PRIMARY KEY (tenant, id)
);
-- Lists: newest first, of a tenant, of an owner, of a phase.
CREATE INDEX sessions_created ON sessions (tenant, created_at DESC, id DESC);
CREATE INDEX sessions_owner ON sessions (tenant, owner, created_at DESC, id DESC);
CREATE INDEX sessions_phase ON sessions (tenant, phase, created_at DESC, id DESC);
CREATE INDEX sessions_labels ON sessions USING gin (labels jsonb_path_ops);
-- The sweeps' work is small however many sessions there have been.
CREATE INDEX sessions_unsettled ON sessions (tenant, id) WHERE unsettled <> '{}';

CREATE TABLE deadlines (
    tenant  text        NOT NULL,
    session text        NOT NULL,
    kind    text        NOT NULL, -- idle, waiting, max, claim, approval, execution
    key     text        NOT NULL DEFAULT '', -- the call's id where the kind has several
    service text        NOT NULL, -- that decides it
    due_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant, session, kind, key)
);
CREATE INDEX deadlines_due ON deadlines (service, due_at);

CREATE TABLE workloads (
    tenant             text        NOT NULL,
    session            text        NOT NULL,
    generation         bigint      NOT NULL,
    state              text        NOT NULL,
    sandbox_uid        text        NOT NULL DEFAULT '',
    pod_uid            text        NOT NULL DEFAULT '',
    path               text        NOT NULL DEFAULT '', -- warm, cold
    isolation          text        NOT NULL DEFAULT '',
    restarts           integer     NOT NULL DEFAULT 0,
    layers             jsonb       NOT NULL DEFAULT '{}', -- milliseconds of each layer up to ready
    cause              text        NOT NULL DEFAULT '',
    claim_requested_at timestamptz NOT NULL,
    claimed_at         timestamptz,
    ready_at           timestamptz,
    released_at        timestamptz,
    n                  bigint      NOT NULL,
    PRIMARY KEY (tenant, session, generation)
);
-- Comparing what exists with the log: who holds this sandbox, and who holds any.
CREATE INDEX workloads_sandbox ON workloads (sandbox_uid) WHERE sandbox_uid <> '';
CREATE INDEX workloads_unreleased ON workloads (tenant, session) WHERE released_at IS NULL;

CREATE TABLE runs (
    tenant     text        NOT NULL,
    session    text        NOT NULL,
    id         text        NOT NULL,
    parent     text        NOT NULL DEFAULT '', -- the run that this one goes on from
    state      text        NOT NULL,
    requester  text        NOT NULL,
    instance   text        NOT NULL DEFAULT '', -- of the runner that drives it
    last_k     bigint      NOT NULL DEFAULT 0,
    cause      text        NOT NULL DEFAULT '',
    calls      json        NOT NULL, -- ids of what an interrupted run waits for
    queued_at  timestamptz NOT NULL,
    started_at timestamptz,
    ended_at   timestamptz,
    n          bigint      NOT NULL,
    PRIMARY KEY (tenant, session, id)
);
CREATE INDEX runs_order ON runs (tenant, session, queued_at, id);

CREATE TABLE messages (
    tenant    text        NOT NULL,
    session   text        NOT NULL,
    id        text        NOT NULL,
    run       text        NOT NULL,
    view      json        NOT NULL, -- the Message of the API
    at        timestamptz NOT NULL,
    n         bigint      NOT NULL,
    PRIMARY KEY (tenant, session, id)
);
CREATE INDEX messages_order ON messages (tenant, session, n);
