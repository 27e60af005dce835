package servertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPeer: a peer that is missing, or of a version that a test does not know, is named
// with the version that is wanted.
func TestPeer(t *testing.T) {
	for said, why := range map[string]string{
		"v2.11.2 h1:iOlps=":           "",
		"2.6.2":                       `version "2.6.2", and the test is for 2.11.`,
		"nginx version: nginx/1.22.1": `version "1.22.1"`,
		"unknown":                     `version ""`,
	} {
		file := filepath.Join(t.TempDir(), "peer")
		if err := os.WriteFile(file, []byte("#!/bin/sh\necho '"+said+"'\n"), 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		t.Setenv("TEST_PEER", file)
		path, got := Peer{Name: "peer", Package: "none", Env: "TEST_PEER", Version: []string{"version"}, Known: []string{"2.11."}}.Find()
		if (path == file) != (why == "") || !strings.Contains(got, why) {
			t.Errorf("%s: %q %q", said, path, got)
		}
	}
	if _, why := (Peer{Name: "no-such-program", Package: "Debian: none"}).Find(); !strings.Contains(why, "not installed (Debian: none)") {
		t.Error(why)
	}
}
