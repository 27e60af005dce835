package engine_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A browser loads a page and its script over HTTP/3, and says so itself.
func TestChromiumOverHTTP3(t *testing.T) {
	t.Parallel() // it mostly waits
	if testing.Short() {
		t.Skip("a browser is not short")
	}
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is missing: install the package chromium")
	}
	certFile, key, _ := certificate(t)
	text, err := os.ReadFile(certFile)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	pin := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	dir := folder(t, map[string]string{
		"index.html": `<!doctype html><title>page</title><p>hello</p><script src="script.js"></script>`,
		"script.js":  `addEventListener("load", () => { for (const kind of ["navigation", "resource"]) document.body.append(kind + "=" + performance.getEntriesByType(kind)[0].nextHopProtocol + ";") })`,
	})
	port := freePort(t)
	start(t, parse(t, fmt.Sprintf("listen: []\ntls: {listen: '127.0.0.1:%d', cert: %s, key: %s, http3: true}\nsites: [{routes: {/: {static: {root: %s}}}}]", port, certFile, key, dir)))
	address := net.JoinHostPort("localhost", fmt.Sprint(port))
	home, err := os.MkdirTemp("", "millrace-chromium-") // some process of it may write to the last
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--user-data-dir="+home, "--origin-to-force-quic-on="+address, "--host-resolver-rules=MAP localhost 127.0.0.1",
		"--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(pin[:]), "--virtual-time-budget=5000", "--dump-dom", "https://"+address+"/")
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.WaitDelay = 5 * time.Second
	var errs strings.Builder
	cmd.Stderr = &errs
	page, err := cmd.Output()
	if err != nil && !strings.Contains(errs.String(), "Page load failed") {
		t.Skipf("the browser does not run here: %v\n%s", err, errs.String())
	}
	if !strings.Contains(string(page), "navigation=h3;resource=h3;") {
		t.Errorf("the browser has\n%s\n%s", page, errs.String())
	}
}
