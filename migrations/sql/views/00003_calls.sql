-- What agents want to do, and people's answers.

CREATE TABLE calls (
    tenant        text        NOT NULL,
    session       text        NOT NULL,
    id            text        NOT NULL, -- <session>.c-<hash>
    agent_call_id text        NOT NULL,
    run           text        NOT NULL,
    tool          text        NOT NULL,
    args          json        NOT NULL, -- canonical (RFC 8785), masked
    args_hash     text        NOT NULL, -- SHA-256 of the canonical arguments, in hex
    state         text        NOT NULL,
    decision      text        NOT NULL DEFAULT '', -- allow, deny, ask
    rule          text        NOT NULL DEFAULT '',
    policy        text        NOT NULL DEFAULT '',
    revision      bigint      NOT NULL DEFAULT 0,
    enforcement   text        NOT NULL DEFAULT '', -- mediated, asked
    started_at    timestamptz,
    completed_at  timestamptz,
    exit_code     integer,
    result        json,
    n             bigint      NOT NULL,
    PRIMARY KEY (tenant, session, id)
);
CREATE INDEX calls_order ON calls (tenant, session, n);
-- A backtest reads the recorded calls of a policy.
CREATE INDEX calls_policy ON calls (tenant, policy, session, n);

CREATE TABLE approvals (
    tenant     text        NOT NULL,
    session    text        NOT NULL,
    id         text        NOT NULL, -- the call's
    state      text        NOT NULL,
    requester  text        NOT NULL,
    deadline   timestamptz,          -- NULL: never
    asked_at   timestamptz NOT NULL,
    decided_by text        NOT NULL DEFAULT '',
    decided_at timestamptz,
    reason     text        NOT NULL DEFAULT '',
    view       json        NOT NULL, -- the Approval of the API at n
    n          bigint      NOT NULL,
    PRIMARY KEY (tenant, session, id)
);
-- The inbox: what is pending, the nearest deadline first. The date stands for never.
CREATE INDEX approvals_inbox ON approvals (tenant, coalesce(deadline, '9999-12-31 00:00:00+00'), id) WHERE state = 'pending';
CREATE INDEX approvals_asked ON approvals (tenant, asked_at DESC, id DESC);
