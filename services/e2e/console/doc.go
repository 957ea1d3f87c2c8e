// Package console tests the console as people meet it: in a real Chromium, served by
// the whole program, with real agents in real sandboxes behind it.
//
// Without a Chromium the tests are skipped, loudly; with HOLDFAST_REQUIRE_CHROMIUM=1,
// as in CI, they fail instead. HOLDFAST_CHROMIUM names another browser than
// /usr/bin/chromium, HOLDFAST_SCREENSHOTS a directory to keep pictures of each page in.
package console
