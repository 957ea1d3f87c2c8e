-- +goose Up
-- What agents said lately, copied from OUTPUT. It ages out and cannot be built
-- again from EVENTS, so it and its place live outside the views and a rebuild
-- leaves them alone.
CREATE TABLE output (
    seq     bigint      PRIMARY KEY, -- in OUTPUT
    epoch   text        NOT NULL,
    tenant  text        NOT NULL,
    session text        NOT NULL,
    run     text        NOT NULL,
    first_k bigint      NOT NULL,
    last_k  bigint      NOT NULL,
    after_n bigint      NOT NULL, -- the session's n when it was written
    data    bytea       NOT NULL, -- the JSON array of AG-UI events, unchanged
    at      timestamptz NOT NULL
);
CREATE INDEX output_session ON output (tenant, session, seq);
-- Deletion by age. Rows arrive in order of time, which is what BRIN is for.
CREATE INDEX output_age ON output USING brin (at) WITH (pages_per_range = 16);

CREATE TABLE output_checkpoint (
    name       text        PRIMARY KEY,
    epoch      text        NOT NULL,
    seq        bigint      NOT NULL,
    hash       bytea       NOT NULL,
    updated_at timestamptz NOT NULL
);

-- Up to where a session's output is gone, so that a reader can say that it lacks
-- something. Tenant and session '' are everybody's: what the projector itself missed.
CREATE TABLE output_floor (
    tenant  text   NOT NULL,
    session text   NOT NULL,
    seq     bigint NOT NULL,
    PRIMARY KEY (tenant, session)
);
