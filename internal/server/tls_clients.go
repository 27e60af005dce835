package server

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What tls.client_auth may say.
const (
	clientRequired = "required"
	clientOptional = "optional"
)

// clientCAs reads ClientCA; nil where there is none.
func (o TLSOptions) clientCAs() (*x509.CertPool, []byte, error) {
	if o.ClientCA == "" {
		return nil, nil, nil
	}
	text, err := os.ReadFile(o.ClientCA)
	if err != nil {
		return nil, nil, fmt.Errorf("tls.client_ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, nil, fmt.Errorf("tls.client_ca: %s has no certificate in PEM", o.ClientCA)
	}
	return pool, text, nil
}

// checkClients returns what is wrong with the options about clients' certificates.
func (o TLSOptions) checkClients() map[string]error {
	switch {
	case !slices.Contains([]string{"", clientRequired, clientOptional}, o.ClientAuth):
		return map[string]error{"client_auth": fmt.Errorf("%q is none of required and optional", o.ClientAuth)}
	case o.ClientCA == "" && o.ClientAuth != "":
		return map[string]error{"client_auth": errors.New("certificates of clients, but nobody to trust: add client_ca: FILE, the certificates (PEM) of the CAs that issue them")}
	}
	if _, _, err := o.clientCAs(); err != nil {
		return map[string]error{"client_ca": errors.New(strings.TrimPrefix(err.Error(), "tls.client_ca: "))}
	}
	return nil
}

// RequiresClients reports whether nobody gets in without a certificate.
func (o TLSOptions) RequiresClients() bool {
	return o.ClientCA != "" && o.ClientAuth != clientOptional
}

// askClients has c ask clients for their certificates, but not the CA that
// proves a name by a handshake (RFC 8737): it has none.
func askClients(c *tls.Config, o TLSOptions, cas *x509.CertPool) {
	if cas == nil {
		return
	}
	proof := c.Clone()
	proof.NextProtos = []string{challengeProto}
	c.ClientCAs, c.ClientAuth = cas, tls.VerifyClientCertIfGiven
	if o.RequiresClients() {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if isChallenge(hello) {
			return proof, nil
		}
		return nil, nil // c itself
	}
}

// HSTS tells browsers to come over HTTPS alone from now on (RFC 6797).
type HSTS struct {
	// MaxAge is how long browsers keep to it. Default 8760h, a year.
	MaxAge time.Duration `yaml:"max_age"`
	// Subdomains has them do so for all names below the host as well.
	Subdomains bool `yaml:"subdomains"`
	// Preload agrees to be put on the list that browsers come with. Hardly to be
	// taken back.
	Preload bool `yaml:"preload"`
}

// aYear is the default of HSTS.MaxAge, and the least for Preload.
const aYear = 365 * 24 * time.Hour

// UnmarshalText lets a config say "hsts: on".
func (h *HSTS) UnmarshalText(text []byte) error {
	if s := string(text); s != "on" && s != "true" {
		return fmt.Errorf("%q is not on: write \"hsts: on\", or max_age, subdomains and preload below it", s)
	}
	*h = HSTS{MaxAge: aYear}
	return nil
}

func (h *HSTS) age() time.Duration {
	if h.MaxAge == 0 {
		return aYear
	}
	return h.MaxAge
}

func (h *HSTS) check() error {
	switch {
	case h == nil:
		return nil
	case h.MaxAge < 0:
		return errors.New("max_age is negative")
	case h.Preload && (!h.Subdomains || h.age() < aYear):
		return errors.New("the list that browsers come with takes only hosts with subdomains: true and a max_age of 8760h or more")
	}
	return nil
}

// value is that of Strict-Transport-Security.
func (h *HSTS) value() string {
	text := "max-age=" + strconv.FormatInt(int64(h.age()/time.Second), 10)
	if h.Subdomains {
		text += "; includeSubDomains"
	}
	if h.Preload {
		text += "; preload"
	}
	return text
}

// always are the fields of every answer over TLS; nil for none.
func (o TLSOptions) always(quic map[string]*quicListener) *http.Header {
	h := http.Header{}
	if text := altSvc(quic); text != "" {
		h["Alt-Svc"] = []string{text}
	}
	if o.HSTS != nil {
		h["Strict-Transport-Security"] = []string{o.HSTS.value()}
	}
	if len(h) == 0 {
		return nil
	}
	return &h
}

// tlsKey is the same for options that lead to the same configuration.
func tlsKey(o TLSOptions, cas []byte, ech []tls.EncryptedClientHelloKey) [sha256.Size]byte {
	text, _ := json.Marshal([]any{o.MinVersion, o.ClientAuth, cas, ech}) // of texts alone
	return sha256.Sum256(text)
}
