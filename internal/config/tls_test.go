package config

import (
	"crypto/rand"
	"crypto/rsa"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/process/servertest"
	"millrace/internal/server"
)

// ignoreUnexported compares options by what a config can say about them.
func ignoreUnexported() cmp.Option {
	return cmp.FilterPath(func(p cmp.Path) bool {
		f, ok := p.Last().(cmp.StructField)
		return ok && (f.Name()[0] < 'A' || f.Name()[0] > 'Z')
	}, cmp.Ignore())
}

// writeCertificate makes cert.pem and key.pem in a new folder.
func writeCertificate(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	servertest.Files(t, servertest.Make(t, "localhost", "localhost", "example.org"), dir)
	return dir
}

func TestCertificates(t *testing.T) {
	a, b := writeCertificate(t), writeCertificate(t)
	big := filepath.Join(a, "big.pem")
	if err := os.WriteFile(big, make([]byte, 1<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ cert, key, want string }{
		"pair":      {a + "/cert.pem", a + "/key.pem", ""},
		"no pair":   {a + "/cert.pem", b + "/key.pem", "not a pair"},
		"swapped":   {a + "/key.pem", a + "/cert.pem", "not a pair"},
		"folder":    {a, a + "/key.pem", "is not a file"},
		"device":    {"/dev/zero", a + "/key.pem", "is not a file"},
		"too large": {big, a + "/key.pem", "too large"},
		"typo":      {a + "/crt.pem", a + "/key.pem", "did you mean " + a + "/cert.pem?"},
	} {
		cfg := ForDir("testdata/public")
		cfg.TLS.Listen, cfg.TLS.Cert, cfg.TLS.Key = []string{"127.0.0.1:0"}, c.cert, c.key
		err := cfg.Check()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestSeveralCertificates(t *testing.T) {
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	a, b := writeCertificate(t), writeCertificate(t)
	c := t.TempDir()
	servertest.Files(t, servertest.MakeOf(t, old, "localhost", "localhost"), c)
	pair := func(dir string) server.KeyPair {
		return server.KeyPair{Cert: dir + "/cert.pem", Key: dir + "/key.pem"}
	}
	for name, test := range map[string]struct {
		pairs []server.KeyPair
		want  string
	}{
		"one":          {[]server.KeyPair{pair(a)}, ""},
		"two kinds":    {[]server.KeyPair{pair(a), pair(c)}, ""},
		"twice":        {[]server.KeyPair{pair(a), pair(c), pair(b)}, b + "/cert.pem and " + a + "/cert.pem both have a key of the kind ECDSA and are both for localhost"},
		"other's key":  {[]server.KeyPair{pair(c), {Cert: a + "/cert.pem", Key: b + "/key.pem"}}, "not a pair"},
		"no key":       {[]server.KeyPair{{Cert: a + "/cert.pem"}}, "a certificate without its key"},
		"nothing":      {[]server.KeyPair{{}}, "a certificate is missing here"},
		"missing file": {[]server.KeyPair{{Cert: a + "/crt.pem", Key: a + "/key.pem"}}, "did you mean " + a + "/cert.pem?"},
	} {
		cfg := ForDir("testdata/public")
		cfg.TLS.Listen, cfg.TLS.Certificates = []string{"127.0.0.1:0"}, test.pairs
		err := cfg.Check()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	cfg := ForDir("testdata/public")
	cfg.TLS.Certificates = []server.KeyPair{pair(a)}
	if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), "no address for HTTPS") {
		t.Errorf("without an address: %v", err)
	}
}
