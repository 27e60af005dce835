package server

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/process/servertest"
)

// wardrobe is a server with a certificate of its own for each of several hosts.
func wardrobe(t *testing.T) (r *rig, dir string) {
	t.Helper()
	r = start(t, plan{})
	dir = t.TempDir()
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		key   crypto.Signer
		hosts []string
	}{
		{"old", old, []string{"example.org"}},
		{"new", ec(t), []string{"Example.org"}},
		{"wild", ec(t), []string{"*.example.org"}},
		{"exact", ec(t), []string{"a.example.org"}},
	} {
		pair := KeyPair{Cert: filepath.Join(dir, c.name+".pem"), Key: filepath.Join(dir, c.name+".key")}
		servertest.Write(t, servertest.MakeOf(t, c.key, c.name, c.hosts...), pair.Cert, pair.Key)
		r.setup.TLS.Certificates = append(r.setup.TLS.Certificates, pair)
	}
	if err := r.srv.Reload(r.setup); err != nil {
		t.Fatal(err)
	}
	return r, dir
}

func ec(t *testing.T) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// given is the name of the certificate that a client gets, who asks for host.
func (r *rig) given(host string, change func(*tls.Config)) string {
	r.tb.Helper()
	conf := &tls.Config{InsecureSkipVerify: true, ServerName: host}
	if change != nil {
		change(conf)
	}
	c, err := tls.Dial("tcp", r.secure, conf)
	if err != nil {
		r.tb.Fatalf("%q: %v", host, err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// Who can do RSA only, here by the suites of TLS 1.2.
func onlyRSA(c *tls.Config) {
	c.MaxVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}
}

func TestCertificateForHost(t *testing.T) {
	r, dir := wardrobe(t)
	for _, c := range []struct {
		host   string
		change func(*tls.Config)
		want   string
	}{
		{"example.org", nil, "new"},
		{"EXAMPLE.org", nil, "new"},
		{"example.org", onlyRSA, "old"},
		{"a.example.org", nil, "exact"},
		{"b.example.org", nil, "wild"},
		{"c.b.example.org", nil, "first"},
		{"elsewhere.example", nil, "first"},
		{"elsewhere.example", onlyRSA, "old"},
		{"127.0.0.1", nil, "first"}, // no SNI is sent for an address
	} {
		if got := r.given(c.host, c.change); got != c.want {
			t.Errorf("%s: got the certificate %q, want %q", c.host, got, c.want)
		}
	}
	for host, want := range map[string]bool{"example.org": true, "x.example.org": true, "127.0.0.1": true, "other.example": false} {
		if r.srv.Certifies(host) != want {
			t.Errorf("Certifies(%q) is %v", host, !want)
		}
	}

	// Each file is read again when it changes, also one of the list.
	servertest.Write(t, servertest.Make(t, "renewed wild", "*.example.org", "late.example"), filepath.Join(dir, "wild.pem"), filepath.Join(dir, "wild.key"))
	r.srv.certs.looked.Store(0)
	for host, want := range map[string]string{"b.example.org": "renewed wild", "late.example": "renewed wild", "example.org": "new"} {
		if got := r.given(host, nil); got != want {
			t.Errorf("after the change, %s: %q, want %q", host, got, want)
		}
	}

	// Without cert and key the first of the list is the default.
	r.setup.TLS.Cert, r.setup.TLS.Key = "", ""
	if err := r.srv.Reload(r.setup); err != nil {
		t.Fatal(err)
	}
	if got := r.given("elsewhere.example", nil); got != "old" {
		t.Errorf("the default is %q", got)
	}
	r.setup.TLS.Certificates[1].Key = r.setup.TLS.Certificates[0].Key
	if err := r.srv.Reload(r.setup); err == nil || !strings.Contains(err.Error(), "new.pem") {
		t.Errorf("a key that does not fit: %v", err)
	}
	if got := r.given("example.org", nil); got != "new" {
		t.Errorf("after a reload that failed: %q", got)
	}
}

// The hybrid of X25519 and ML-KEM is what Go's own client ends up with.
func TestPostQuantumIsOffered(t *testing.T) {
	r := start(t, plan{})
	c, err := tls.Dial("tcp", r.secure, r.clientTLS)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.ConnectionState().CurveID; got != tls.X25519MLKEM768 {
		t.Errorf("the key exchange is %v", got)
	}
}
