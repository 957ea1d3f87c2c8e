-- Runtimes and policies: every revision, the last one marked. A removal is a
-- revision too (removed, with the spec that it removed).

CREATE TABLE runtimes (
    tenant     text        NOT NULL,
    name       text        NOT NULL,
    revision   bigint      NOT NULL, -- the n of its apply
    latest     boolean     NOT NULL,
    spec       json        NOT NULL,
    removed    boolean     NOT NULL DEFAULT false,
    applied_by text        NOT NULL,
    at         timestamptz NOT NULL,
    n          bigint      NOT NULL,
    seq        bigint      NOT NULL,
    PRIMARY KEY (tenant, name, revision)
);
CREATE UNIQUE INDEX runtimes_latest ON runtimes (tenant, name) WHERE latest;

CREATE TABLE policies (
    tenant     text        NOT NULL,
    name       text        NOT NULL,
    revision   bigint      NOT NULL,
    latest     boolean     NOT NULL,
    spec       json        NOT NULL,
    removed    boolean     NOT NULL DEFAULT false,
    applied_by text        NOT NULL,
    at         timestamptz NOT NULL,
    n          bigint      NOT NULL,
    seq        bigint      NOT NULL,
    PRIMARY KEY (tenant, name, revision)
);
CREATE UNIQUE INDEX policies_latest ON policies (tenant, name) WHERE latest;
