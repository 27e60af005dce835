package arm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Mode is what a server of WebSockets does.
type Mode string

// The modes. A server that has the mode Channels takes subscribers at /ws and
// publications at /publish; the others have their WebSocket at /echo.
const (
	Echo     Mode = "echo"
	TLS      Mode = "echo over TLS"
	Channels Mode = "channels"
	Proxy    Mode = "proxy"
)

// Has tells whether the arm can be started in a mode.
func (a Arm) Has(m Mode) bool { return slices.Contains(a.Modes, m) }

// Sockets are the arms of bench/run ws.
func Sockets() []Arm {
	peer := []Mode{Echo, Channels}
	return []Arm{
		{Name: "millrace", Title: "millrace", Program: Millrace, TCP: true, Any: true, Modes: []Mode{Echo, TLS, Channels, Proxy}, Command: millraceSockets},
		{Name: "gws", Title: "gws", Program: GWS, TCP: true, Any: true, Modes: append([]Mode{TLS}, peer...), Command: socketPeer("wsgws")},
		{Name: "coder", Title: "coder/websocket", Program: Coder, TCP: true, Any: true, Modes: peer, Command: socketPeer("wscoder")},
		{Name: "gorilla", Title: "gorilla/websocket", Program: Gorilla, TCP: true, Any: true, Modes: peer, Command: socketPeer("wsgorilla")},
		{Name: "nginx", Title: "nginx", Program: Nginx, TCP: true, Any: true, Modes: []Mode{Proxy}, Command: nginxSockets},
	}
}

// millraceSockets is its command with WebSockets.
func millraceSockets(e Env) ([]string, error) {
	argv := []string{e.Binary, "ws"}
	switch e.Mode {
	case Channels:
		argv = append(argv, "--channels")
	case Proxy:
		argv = append(argv, "proxy", "ws://"+e.Upstream)
	}
	if e.Mode != TLS {
		return append(argv, "--listen", e.Address, "--log", "off", "--admin", "off"), nil
	}
	cert, key, err := certificate(e.Dir)
	if err != nil {
		return nil, err
	}
	return append(argv, "--listen", "unix:"+e.Socket(), "--tls-listen", e.Address, "--tls-cert", cert, "--tls-key", key, "--log", "off", "--admin", "off"), nil
}

// socketPeer is the command of a server in this module.
func socketPeer(name string) func(Env) ([]string, error) {
	return func(e Env) ([]string, error) {
		argv := []string{filepath.Join(e.Bin, name), "-listen", e.Address}
		switch e.Mode {
		case Channels:
			argv = append(argv, "-broadcast")
		case TLS:
			cert, key, err := certificate(e.Dir)
			if err != nil {
				return nil, err
			}
			argv = append(argv, "-cert", cert, "-key", key)
		}
		return argv, nil
	}
}

// nginxSockets is nginx passing WebSockets on.
func nginxSockets(e Env) ([]string, error) {
	return nginxWith(e, "ws.conf.tmpl", nginxConfig{Dir: e.Dir, Address: e.Address, Upstream: e.Upstream})
}

// certificate makes a key and a certificate signed with it in a folder: P-256,
// as an ACME client gets it today.
func certificate(dir string) (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", fmt.Errorf("making a certificate: %w", err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", fmt.Errorf("encoding a key: %w", err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o600); err != nil {
		return "", "", fmt.Errorf("writing a certificate: %w", err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600); err != nil {
		return "", "", fmt.Errorf("writing a key: %w", err)
	}
	return cert, key, nil
}
