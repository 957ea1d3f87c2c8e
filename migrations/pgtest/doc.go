// Package pgtest gives each test a Postgres database of its own, cloned from a
// template that has all migrations: real Postgres for tens of milliseconds.
//
//	pool := pgtest.Pool(t)  // migrated, search_path on the read models
//	dsn := pgtest.New(t)    // migrated
//	dsn := pgtest.Empty(t)  // nothing in it
//
// A test process starts one server from the PostgreSQL programs of this machine
// on first use (package pgserver), with its data in shared memory and no fsync,
// so that packages tested at the same time share nothing. What initdb makes is
// kept in the user's cache folder and copied. The server dies with the test
// process, also on SIGKILL, and a child that waits for that end removes the data.
//
// With [EnvURL] set the databases are made on that server instead; its user must
// be allowed to make databases and roles.
//
// The server is a few goroutines for the life of the process. A package that
// looks for leaks at its end lets pgtest stop it first:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }
//
// and a test that looks for its own leaks passes goleak.IgnoreCurrent(), taken
// after its database was made.
package pgtest
