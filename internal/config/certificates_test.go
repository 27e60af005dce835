package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/internal/process/servertest"
	"millrace/internal/server"
)

// signed is a certificate of another one, or of itself.
func signed(t *testing.T, name string, until time.Time, by *tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: until.Add(-time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Each mistake with files is told with what to do, before anything is served.
func TestBadCertificates(t *testing.T) {
	later := time.Now().Add(time.Minute)
	root := signed(t, "root", later, nil)
	middle := signed(t, "middle", later, &root)
	leaf := signed(t, "a.example", later, &middle)
	old, other := signed(t, "a.example", time.Now().Add(-time.Hour), nil), signed(t, "b.example", later, nil)
	for name, test := range map[string]struct {
		key   tls.Certificate
		chain []tls.Certificate
		want  []string
	}{
		"good":                {leaf, []tls.Certificate{leaf, middle, root}, nil},
		"without its issuers": {leaf, []tls.Certificate{leaf}, nil},
		"wrong order":         {leaf, []tls.Certificate{middle, leaf}, []string{"wrong order", "number 2", "cat site.pem intermediate.pem"}},
		"root before middle":  {leaf, []tls.Certificate{leaf, root, middle}, []string{"wrong order", "number 1 is not followed by its issuer"}},
		"other's key":         {other, []tls.Certificate{leaf, middle}, []string{"not a pair", "openssl pkey -pubout"}},
		"expired":             {old, []tls.Certificate{old}, []string{"has expired on", "auto: on"}},
		"for another name":    {other, []tls.Certificate{other}, []string{"is for b.example, and no site has such a host", "a.example"}},
	} {
		dir := t.TempDir()
		cert, key := servertest.Files(t, test.key, dir)
		var text []byte
		for _, c := range test.chain {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})...)
		}
		if err := os.WriteFile(cert, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := ForDir("testdata/public")
		cfg.Sites[0].Hosts = []string{"a.example"}
		cfg.TLS.Listen, cfg.TLS.Cert, cfg.TLS.Key = []string{"127.0.0.1:0"}, cert, key
		err := cfg.Check()
		if len(test.want) == 0 && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// What options about certificates say that cannot be.
func TestBadTLS(t *testing.T) {
	dir := writeCertificate(t)
	text := filepath.Join(t.TempDir(), "text.pem")
	if err := os.WriteFile(text, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"unless the DNS shows that it is yours": func(c *Config) { c.TLS.Auto, c.Sites[0].Hosts = &server.AutoOptions{}, []string{"*.a.example"} },
		"keys that are shared must be sealed":   func(c *Config) { c.TLS.Auto = &server.AutoOptions{Hosts: []string{"a.example"}, Storage: "redis://h"} },
		"a secret of 5 characters can be guessed": func(c *Config) {
			c.TLS.Auto = &server.AutoOptions{Hosts: []string{"a.example"}, Storage: "s3://h/b", StorageSecret: "short"}
		},
		"certificates cannot be kept in ftp://":             func(c *Config) { c.TLS.Auto = &server.AutoOptions{Hosts: []string{"a.example"}, Storage: "ftp://h"} },
		"has no certificate in PEM":                         func(c *Config) { c.TLS.ClientCA = text },
		"none of required and optional":                     func(c *Config) { c.TLS.ClientAuth = "maybe" },
		"nobody to trust: add client_ca":                    func(c *Config) { c.TLS.ClientAuth = "optional" },
		"serve the same sites without one":                  func(c *Config) { c.TLS.ClientCA = dir + "/cert.pem" },
		"takes only hosts with subdomains":                  func(c *Config) { c.TLS.HSTS = &server.HSTS{Preload: true} },
		"it is no file of RFC 9934: a PRIVATE KEY (X25519)": func(c *Config) { c.TLS.ECH = []string{text} },
		"is not the name of a host, as in example.org":      func(c *Config) { c.TLS.Auto = &server.AutoOptions{Hosts: []string{"a b"}} },
		"write letsencrypt, letsencrypt-staging, internal, or": func(c *Config) {
			c.TLS.Auto = &server.AutoOptions{Hosts: []string{"a.example"}, CA: []string{"http://ca"}}
		},
	} {
		cfg := ForDir("testdata/public")
		cfg.TLS.Listen, cfg.TLS.Cert, cfg.TLS.Key = []string{"127.0.0.1:0"}, dir+"/cert.pem", dir+"/key.pem"
		change(cfg)
		if err := cfg.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
