package engine

import (
	"slices"
	"testing"

	"millrace/internal/config"
	"millrace/internal/process/confine"
)

// TestReachOfKeys: the sandbox lets a server read where the keys of its S3 server
// are, unless the URL has them, and the certificates that the URL names.
func TestReachOfKeys(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	reads := func(url, path string) bool {
		cfg := new(config.Config)
		cfg.TLS.Tickets.Shared.URL = url
		return slices.ContainsFunc(Reach(cfg, ""), func(r confine.Rule) bool { return r.Path == path && r.Access == confine.Read })
	}
	if !reads("s3://host/bucket", "/home/u/.aws") {
		t.Error("no profile can be read")
	}
	if reads("s3://key:secret@host/bucket", "/home/u/.aws") || reads("redis://host", "/home/u/.aws") {
		t.Error("profiles can be read that are not needed")
	}
	if !reads("s3://host/bucket?ca=/srv/ca.pem", "/srv/ca.pem") {
		t.Error("the certificates of tls.tickets.shared cannot be read")
	}
}
