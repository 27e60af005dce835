package server

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ocsp"
)

// A certificate whose CA names a responder gets a staple, which is renewed after
// half of its time, kept while the responder fails, and dropped at its end.
func TestStaples(t *testing.T) {
	now := time.Now()
	status, asked, broken := ocsp.Good, 0, false
	var ca *x509.Certificate
	var caKey crypto.Signer
	responder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		body, _ := io.ReadAll(r.Body)
		q, err := ocsp.ParseRequest(body)
		if err != nil || broken {
			http.Error(w, "broken", http.StatusBadGateway)
			return
		}
		answer, err := ocsp.CreateResponse(ca, ca, ocsp.Response{Status: status, SerialNumber: q.SerialNumber, ThisUpdate: now.Add(-time.Minute), NextUpdate: now.Add(time.Hour), RevokedAt: now.Add(-time.Minute)}, caKey)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(answer)
	}))
	defer responder.Close()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	own, leafKey := key(), key()
	caKey = own
	der, err := x509.CreateCertificate(rand.Reader, template, template, own.Public(), own)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"a.example"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), OCSPServer: []string{responder.URL},
	}, ca, leafKey.Public(), own)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := KeyPair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	private, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	chain := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf})) + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	if err := os.WriteFile(files.Cert, []byte(chain), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	c := &certificates{errors: slog.New(slog.NewTextHandler(&said, nil))}
	if err := c.load([]KeyPair{files}); err != nil {
		t.Fatal(err)
	}
	known := map[KeyPair]*staple{}
	stapled := func(at time.Time, wantAsked int, want bool) {
		t.Helper()
		c.stapleAll(t.Context(), http.DefaultClient, known, at)
		if got := len(c.choice.Load().all[0].OCSPStaple) > 0; asked != wantAsked || got != want {
			t.Errorf("asked %d times, want %d; a staple: %v, want %v", asked, wantAsked, got, want)
		}
	}
	stapled(now, 1, true)
	stapled(now.Add(10*time.Minute), 1, true) // before half of its time
	broken = true
	stapled(now.Add(31*time.Minute), 2, true) // fails
	stapled(now.Add(32*time.Minute), 2, true) // too early for another try
	if strings.Count(said.String(), "there is no OCSP answer") != 1 {
		t.Errorf("the log says %q", said.String())
	}
	stapled(now.Add(2*time.Hour), 3, false) // its time is over
	broken = false
	stapled(now.Add(3*time.Hour), 4, true)
	status = ocsp.Revoked
	stapled(now.Add(4*time.Hour), 5, false)
	if !strings.Contains(said.String(), "was revoked on") {
		t.Errorf("the log says %q", said.String())
	}
}
