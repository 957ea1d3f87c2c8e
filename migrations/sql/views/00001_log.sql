-- What was appended, as it was appended: the projector's place in EVENTS, the
-- bytes, one audit row and one frame for each event.
--
-- In all read models: absent text is '' and absent times are NULL, so that
-- queries need no three-valued logic for names. Documents that carry what
-- agents or people wrote are json, not jsonb: they are served again byte for
-- byte, and jsonb refuses \u0000 and lone surrogates, which an agent may emit.

CREATE TABLE checkpoint (
    name       text        PRIMARY KEY,
    epoch      text        NOT NULL, -- of the log, from genesis
    seq        bigint      NOT NULL, -- of the last message applied, 0 before the first
    hash       bytea       NOT NULL, -- SHA-256 of that message, compared at start
    updated_at timestamptz NOT NULL
);

CREATE TABLE envelopes (
    seq       bigint      PRIMARY KEY, -- in the stream
    subject   text        NOT NULL,
    tenant    text        NOT NULL,
    aggregate text        NOT NULL, -- session, runtime, policy
    key       text        NOT NULL, -- the session's id, or the name
    n         bigint      NOT NULL, -- of its first event
    events    integer     NOT NULL, -- how many it carries
    command   text        NOT NULL,
    at        timestamptz NOT NULL,
    raw       bytea       NOT NULL  -- the message, unchanged
);
-- Loading an aggregate: all envelopes of a subject in order.
CREATE INDEX envelopes_subject ON envelopes (subject, seq);

-- What the projector could not follow: an event of an unknown or a foreign type, a
-- payload that can't be read, a broken chain. Its raw bytes are above, its rows
-- below stay as they were before.
CREATE TABLE faults (
    subject   text        PRIMARY KEY,
    tenant    text        NOT NULL,
    aggregate text        NOT NULL,
    key       text        NOT NULL,
    seq       bigint      NOT NULL, -- of the first message that was not followed
    cause     text        NOT NULL
);

CREATE TABLE audit (
    seq        bigint      NOT NULL,
    idx        smallint    NOT NULL, -- of the event in its envelope, from 0
    tenant     text        NOT NULL,
    aggregate  text        NOT NULL,
    key        text        NOT NULL,
    n          bigint      NOT NULL,
    type       text        NOT NULL,
    service    text        NOT NULL,
    actor_kind text        NOT NULL,
    actor      text        NOT NULL,
    command    text        NOT NULL,
    cause      text        NOT NULL DEFAULT '',
    outcome    text        NOT NULL DEFAULT '',
    at         timestamptz NOT NULL,
    PRIMARY KEY (seq, idx)
);
CREATE INDEX audit_key ON audit (tenant, key, n);
CREATE INDEX audit_actor ON audit (tenant, actor, seq);
CREATE INDEX audit_type ON audit (tenant, type, seq);
CREATE INDEX audit_at ON audit (tenant, at, seq);

CREATE TABLE timeline (
    tenant  text        NOT NULL,
    session text        NOT NULL,
    n       bigint      NOT NULL,
    seq     bigint      NOT NULL,
    idx     smallint    NOT NULL,
    kind    text        NOT NULL, -- event, prompt
    data    json        NOT NULL, -- of the frame
    at      timestamptz NOT NULL,
    PRIMARY KEY (tenant, session, n)
);
