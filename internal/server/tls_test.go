package server

import (
	"bytes"
	"crypto/tls"
	"os"
	"testing"
	"time"
)

// What TLS 1.2 allows and nobody needs is not spoken; 1.3 alone may be wanted.
func TestTLSVersions(t *testing.T) {
	r := start(t, plan{})
	try := func(change func(*tls.Config)) error {
		conf := r.clientTLS.Clone()
		change(conf)
		c, err := tls.Dial("tcp", r.secure, conf)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	old := func(suites ...uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MaxVersion, c.CipherSuites = tls.VersionTLS12, suites }
	}
	if err := try(old(tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)); err != nil {
		t.Errorf("TLS 1.2 with AES-GCM: %v", err)
	}
	if err := try(old(tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA)); err == nil {
		t.Error("TLS 1.2 with CBC is spoken")
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		if err := try(func(c *tls.Config) { c.MaxVersion, c.CurvePreferences = version, []tls.CurveID{tls.CurveP521} }); err == nil {
			t.Errorf("secp521r1 is spoken in %s", tls.VersionName(version))
		}
	}
	r.setup.TLS.MinVersion = "1.3"
	if err := r.srv.Reload(r.setup); err != nil {
		t.Fatal(err)
	}
	if err := try(old()); err == nil {
		t.Error("with min_version 1.3 TLS 1.2 is spoken")
	}
	if err := try(func(*tls.Config) {}); err != nil {
		t.Errorf("with min_version 1.3: %v", err)
	}
	if f := (TLSOptions{MinVersion: "1.1"}).Check(); f["min_version"] == nil {
		t.Error("min_version 1.1 has no fault")
	}
}

// A certificate that could not be read once is tried again, although its files
// look the same.
func TestCertificateIsTriedAgain(t *testing.T) {
	r := start(t, plan{})
	conf := writeCert(t, r.setup.TLS.Cert, r.setup.TLS.Key, "second")
	good, err := os.ReadFile(r.setup.TLS.Cert)
	if err != nil {
		t.Fatal(err)
	}
	look := func(content []byte) string {
		if err := os.WriteFile(r.setup.TLS.Cert, content, 0o600); err != nil {
			t.Fatal(err)
		}
		when := time.Unix(2_000_000_000, 0)
		if err := os.Chtimes(r.setup.TLS.Cert, when, when); err != nil {
			t.Fatal(err)
		}
		r.srv.certs.looked.Store(0)
		pair, err := r.srv.certs.get(&tls.ClientHelloInfo{})
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.Subject.CommonName
	}
	if got := look(bytes.Repeat([]byte{'x'}, len(good))); got != "first" {
		t.Errorf("with a bad one: %q", got)
	}
	if got := look(good); got != "second" {
		t.Errorf("when it can be read again: %q", got)
	}
	c, err := tls.Dial("tcp", r.secure, conf)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}
