package servertest

// This file makes certificates that nobody but the test has signed.

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Make is a certificate with a name, for 127.0.0.1 and these hosts; its key is
// P-256, which is quick to prove. It is its own authority.
func Make(t testing.TB, name string, hosts ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return MakeOf(t, key, name, hosts...)
}

// MakeOf is Make for a key that is there.
func MakeOf(t testing.TB, key crypto.Signer, name string, hosts ...string) tls.Certificate {
	t.Helper()
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: hosts, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Write puts a certificate and its key into files (PEM).
func Write(t testing.TB, c tls.Certificate, cert, key string) {
	t.Helper()
	private, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct {
		name, kind string
		content    []byte
	}{{key, "PRIVATE KEY", private}, {cert, "CERTIFICATE", c.Certificate[0]}} {
		if err := os.WriteFile(f.name, pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.content}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Files is Write into cert.pem and key.pem of a folder.
func Files(t testing.TB, c tls.Certificate, dir string) (cert, key string) {
	t.Helper()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	Write(t, c, cert, key)
	return cert, key
}

// Pool is what a client trusts that trusts only this certificate.
func Pool(c tls.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.Leaf)
	return pool
}
