package engine_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"millrace/internal/engine"
	"millrace/internal/process/servertest"
)

// askOnce is one request over a protocol, on a connection of its own.
func askOnce(t *testing.T, protocol string, srv *engine.Server, path string, config *tls.Config, head http.Header) (*http.Response, string, error) {
	t.Helper()
	w := wayTo(t, protocol, srv, config)
	defer w.close()
	return w.try(http.MethodGet, path, "", head)
}

// Clients prove themselves by certificates, and upstreams are told who they are by
// nobody else, over all protocols, with and without the fast lane.
func TestClientCertificates(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=60")
		for name, values := range r.Header {
			if strings.Contains(strings.ToLower(name), "subject") {
				fmt.Fprintf(w, "%s=%s;", name, strings.Join(values, "|"))
			}
		}
	}))
	defer up.Close()
	cert, key, pool := certificate(t)
	ann, other := servertest.Make(t, "änn\r\nX: y"), servertest.Make(t, "other")
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ann.Certificate[0]})))
	dir := folder(t, map[string]string{"index.html": "page"})
	forged := http.Header{"X-Ssl-Client-Subject": {"CN=root"}, "X_ssl_client_subject": {"CN=root"}, "X-SSL-Client-SUBJECT": {"CN=root"}}
	const subject = `X-Ssl-Client-Subject=CN=\C3\A4nn\0D\0AX: y;`
	servertest.WithLaneAndWithout(t, func(t *testing.T, off bool) {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
		yaml := fmt.Sprintf(`
listen: []
lane: {off: %v}
tls: {listen: %q, cert: %q, key: %q, http3: true, hsts: {max_age: 1h, subdomains: true}, client_ca: %q, client_auth: optional}
sites: [{routes: {/: {static: {root: %q}}, /proxy: {proxy: %q}, /cache: {cache: %q}}}]
`, off, addr, cert, key, ca, dir, up.URL, up.URL)
		srv := start(t, parse(t, yaml))
		with := func(own ...tls.Certificate) *tls.Config {
			return &tls.Config{RootCAs: pool, ServerName: "localhost", GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &slices.Concat(own, []tls.Certificate{{}})[0], nil
			}}
		}
		for _, protocol := range protocols[1:] {
			for range 3 { // the first is not hot
				for path, want := range map[string]string{"/": "page", "/proxy": subject, "/cache": ""} {
					resp, got, err := askOnce(t, protocol, srv, path, with(ann), forged.Clone())
					if err != nil || got != want || resp.Header.Get("Strict-Transport-Security") != "max-age=3600; includeSubDomains" {
						t.Errorf("%s %s with a certificate: %q, %v, %v", protocol, path, got, resp, err)
					}
					if path == "/proxy" {
						want = ""
					}
					if _, got, err := askOnce(t, protocol, srv, path, with(), forged.Clone()); err != nil || got != want {
						t.Errorf("%s %s without: %q, %v", protocol, path, got, err)
					}
				}
			}
			if _, _, err := askOnce(t, protocol, srv, "/", with(other), nil); err == nil {
				t.Errorf("%s: a certificate of somebody else is taken", protocol)
			}
		}
		reload(t, srv, parse(t, strings.Replace(yaml, "optional", "required", 1)))
		for _, protocol := range protocols[1:] {
			if _, got, err := askOnce(t, protocol, srv, "/", with(ann), nil); err != nil || got != "page" {
				t.Errorf("%s, required: %q, %v", protocol, got, err)
			}
			if _, _, err := askOnce(t, protocol, srv, "/", with(), nil); err == nil {
				t.Errorf("%s: nobody needs a certificate", protocol)
			}
		}
	})
}

// A client that knows the key from the DNS hides the name that it asks for.
func TestEncryptedClientHello(t *testing.T) {
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	public, name := private.PublicKey().Bytes(), "public.example"
	body := append([]byte{1, 0, 0x20, 0, byte(len(public))}, public...) // config id, DHKEM(X25519)
	body = append(body, 0, 4, 0, 1, 0, 1, 0, byte(len(name)))           // HKDF-SHA256 and AES-128-GCM, no padding
	body = append(append(body, name...), 0, 0)                          // no extensions
	config := append([]byte{0xfe, 0x0d, 0, byte(len(body))}, body...)   // RFC 9849, 4
	list := append([]byte{0, byte(len(config))}, config...)
	file := filepath.Join(t.TempDir(), "ech.pem")
	write(t, file, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))+string(pem.EncodeToMemory(&pem.Block{Type: "ECHCONFIG", Bytes: list})))
	cert, key, pool := certificate(t)
	dir := folder(t, map[string]string{"index.html": "page"})
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(freePort(t)))
	srv := start(t, parse(t, fmt.Sprintf("listen: []\ntls: {listen: %q, cert: %q, key: %q, http3: true, ech: [%q]}\nsites: [{routes: {/: {static: {root: %q}}}}]", addr, cert, key, file, dir)))
	for _, protocol := range protocols[1:] {
		config := &tls.Config{RootCAs: pool, ServerName: "localhost", EncryptedClientHelloConfigList: list, MinVersion: tls.VersionTLS13}
		resp, got, err := askOnce(t, protocol, srv, "/", config, nil)
		if err != nil || got != "page" || !resp.TLS.ECHAccepted {
			t.Errorf("%s: %q, %v", protocol, got, err)
		}
	}
}
