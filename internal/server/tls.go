package server

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"millrace/store"
)

// TLSOptions are the listeners that speak TLS.
type TLSOptions struct {
	// Listen are their addresses, as in the top-level listen.
	Listen []string `yaml:"listen"`
	// Cert and Key are PEM files, the certificate with its chain. They are
	// read again when they change.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
	// Certificates are more pairs of such files: for hosts with a certificate
	// of their own, and RSA beside ECDSA for clients that know nothing newer. A
	// client gets the certificate that names the host it asks for (the whole
	// name before *.example.org), ECDSA before RSA if it can use both. Who
	// names no host, or one that no certificate is for, gets cert and key, or
	// without these the first of the list.
	Certificates []KeyPair `yaml:"certificates"`
	// Tickets let clients that come back skip the full handshake.
	Tickets TicketOptions `yaml:"tickets"`
	// MinVersion is the oldest version of TLS that is spoken: "1.2" or "1.3".
	// Of 1.2 only suites with forward secrecy and authenticated encryption are.
	// Default "1.2".
	MinVersion string `yaml:"min_version"`
	// ClientCA is a PEM file with the CAs that issue clients their certificates
	// (mutual TLS). The subject of a client's certificate reaches upstreams as
	// X-Ssl-Client-Subject; what a client sends in that field does not. It is read
	// again at a reload.
	ClientCA string `yaml:"client_ca"`
	// ClientAuth says whether a client must have a certificate: required or
	// optional. One that is sent must be good. Default required, with client_ca.
	ClientAuth string `yaml:"client_auth"`
	// HSTS has browsers come over HTTPS alone from now on: "hsts: on" for a year.
	// Default: nothing is said.
	HSTS *HSTS `yaml:"hsts"`
	// ECH is a PEM file with keys for Encrypted Client Hello (RFC 9849), in the
	// form of RFC 9934: PRIVATE KEY, then ECHCONFIG, which also belongs into the
	// DNS (HTTPS record). Of several, the first is offered to clients whose key
	// is out of date. Read again at a reload. Default: none.
	ECH []string `yaml:"ech"`
	// Redirect lets the plain listeners answer every request with a 308 to
	// the https address, for hosts that a site or a certificate names; for
	// others with 404. Default true with auto, else false.
	Redirect *bool `yaml:"redirect"`
	// HTTP3 serves HTTP/3 as well, on the UDP ports of the same numbers, and
	// tells the clients of HTTP/1.1 and HTTP/2 so (Alt-Svc). The firewall must
	// let UDP through. UNIX sockets have none.
	HTTP3 bool `yaml:"http3"`
	// Auto gets certificates by itself, and renews them: "tls: auto" alone is
	// enough. The files above come first for the names that they are for. With
	// "tls: internal" they are of this machine's own CA, for development.
	Auto *AutoOptions `yaml:"auto"`
}

// UnmarshalText lets a config say "tls: auto", and "tls: internal".
func (o *TLSOptions) UnmarshalText(text []byte) error {
	switch s := string(text); s {
	case "auto":
		*o = TLSOptions{Auto: &AutoOptions{}}
	case CAInternal:
		*o = TLSOptions{Auto: &AutoOptions{CA: []string{CAInternal}}}
	default:
		return unknownTLS(s)
	}
	return nil
}

// unknownTLS is what "tls:" says where it is none of its words.
type unknownTLS string

func (s unknownTLS) Error() string { return fmt.Sprintf("%q is none of auto and internal", string(s)) }

// Choices are the words that may stand there.
func (unknownTLS) Choices() []string { return []string{"auto", CAInternal} }

// Redirects reports whether plain requests are sent to the https address.
func (o TLSOptions) Redirects() bool {
	if o.Redirect != nil {
		return *o.Redirect
	}
	return o.Auto != nil
}

// KeyPair is a certificate and its key.
type KeyPair struct {
	// Cert is a PEM file: the certificate with its chain.
	Cert string `yaml:"cert"`
	// Key is the PEM file of its private key.
	Key string `yaml:"key"`
}

// TicketOptions are the session tickets of TLS (RFC 8446, 2.2). Their keys
// change every 12 hours; the two before are still accepted, so that a ticket
// lasts for a day at least, reloads included.
type TicketOptions struct {
	// Shared is where several machines keep the keys of their tickets in common,
	// so that each takes those of the others: a Redis or Valkey, as in
	// redis://host:6379, or a bucket, as in s3://host/bucket/prefix (its own keys
	// are from where images.shared has them). While it cannot be reached, every
	// machine goes on with the keys it has. Default: each process has its own
	// keys, and forgets them when it ends.
	Shared store.Shared `yaml:"shared"`
	// Secret seals the keys that are shared, with AES-256-GCM: the same text of
	// at least 32 characters on all machines, such as "openssl rand -base64 32"
	// prints. Who knows it and can read the store can read recorded sessions of
	// TLS 1.2, so it belongs into an environment variable. Required with shared.
	Secret string `yaml:"secret"`
}

// leastSecret is how many characters tls.tickets.secret must have.
const leastSecret = 32

// Check returns what is wrong with the options, by the key it is wrong with.
func (o TicketOptions) Check() map[string]error {
	if err := o.Shared.Check()["prefix"]; err != nil {
		return map[string]error{"shared.prefix": err}
	}
	switch {
	case o.Shared.URL == "" && o.Secret != "":
		return map[string]error{"secret": errors.New("a secret for shared keys, but \"shared\" does not say where they are: add shared: redis://host:6379")}
	case o.Shared.URL != "" && o.Secret == "":
		return map[string]error{"shared": errors.New("shared keys must be sealed: add secret: ${NAME}, with a variable that holds what `openssl rand -base64 32` prints")}
	case o.Shared.URL != "" && len(o.Secret) < leastSecret:
		return map[string]error{"secret": fmt.Errorf("a secret of %d characters can be guessed: at least %d, as `openssl rand -base64 32` prints them", len(o.Secret), leastSecret)}
	}
	return nil
}

// Pairs are all certificates with their keys; the first is the default.
func (o TLSOptions) Pairs() []KeyPair {
	var all []KeyPair
	if o.Cert != "" {
		all = append(all, KeyPair{o.Cert, o.Key})
	}
	return append(all, o.Certificates...)
}

// Files are where the options name files and folders.
func (o *TLSOptions) Files() []*string {
	all := []*string{&o.Cert, &o.Key, &o.ClientCA}
	for i := range o.ECH {
		all = append(all, &o.ECH[i])
	}
	for i := range o.Certificates {
		all = append(all, &o.Certificates[i].Cert, &o.Certificates[i].Key)
	}
	if a := o.Auto; a != nil {
		if all = append(all, &a.CARoots, &a.DNS); !a.Shared() {
			all = append(all, &a.Storage)
		}
	}
	return all
}

// tlsVersions are what tls.min_version may say.
var tlsVersions = map[string]uint16{"": tls.VersionTLS12, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o TLSOptions) Check() map[string]error {
	if tlsVersions[o.MinVersion] == 0 {
		return map[string]error{"min_version": fmt.Errorf("%q is not a version of TLS that is spoken here: write \"1.2\" or \"1.3\"", o.MinVersion)}
	}
	if found := o.checkClients(); found != nil {
		return found
	}
	if err := o.HSTS.check(); err != nil {
		return map[string]error{"hsts": err}
	}
	if _, err := o.echKeys(); err != nil {
		return map[string]error{"ech": err}
	}
	if o.HTTP3 && len(o.Listen) == 0 {
		return map[string]error{"http3": errors.New("HTTP/3 is served where HTTPS is, and no address is: add listen: [\":443\"] and a certificate, or write auto: {}")}
	}
	if o.Auto == nil {
		return nil
	}
	found := map[string]error{}
	for key, err := range o.Auto.Check() {
		found["auto."+key] = err
	}
	return found
}

// newTLS is the configuration of the TLS listeners: of TLS 1.2 only suites with
// forward secrecy and authenticated encryption, as RFC 9325 wants it, and no
// curve that is expensive and used by nobody but attackers.
func newTLS(o TLSOptions, certs *certificates) *tls.Config {
	return &tls.Config{
		MinVersion: tlsVersions[o.MinVersion],
		NextProtos: []string{"h2", "http/1.1", challengeProto},
		// Answers are written whole: small records first would only cost more.
		DynamicRecordSizingDisabled: true,
		GetCertificate:              certs.get,
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256, tls.CurveP384},
	}
}

// setTLS is for Reload. The keys of session tickets outlive it.
func (s *Server) setTLS(setup Setup, made *tlsFiles) {
	s.tickets.share(setup.Tickets)
	if old := s.tls.Load(); old == nil || s.reload.tlsKey != made.key {
		fresh := newTLS(setup.TLS, s.certs)
		fresh.EncryptedClientHelloKeys = made.ech
		askClients(fresh, setup.TLS, made.cas)
		fresh.SetSessionTicketKeys(s.tickets.current(time.Now()))
		s.reload.tlsKey = made.key
		s.tls.Store(fresh)
		s.quic.tls.Store(tlsHTTP3(fresh))
	}
	if len(setup.TLS.Listen) > 0 && !s.reload.ticketKeysRun {
		s.reload.ticketKeysRun = true
		if setup.Responders != nil {
			s.life.conns.Go(func() { s.certs.staples(s.life.handshakes, setup.Responders) }) // ends with Close
		}
		s.life.conns.Go(func() { // likewise
			s.tickets.run(s.life.handshakes, func(keys [][32]byte) {
				s.tls.Load().SetSessionTicketKeys(keys)
				s.quic.tls.Load().SetSessionTicketKeys(keys)
			})
		})
	}
}

// tlsFiles is what the options name beside certificates.
type tlsFiles struct {
	key [sha256.Size]byte
	cas *x509.CertPool
	ech []tls.EncryptedClientHelloKey
}

func readTLSFiles(o TLSOptions) (*tlsFiles, error) {
	pool, text, err := o.clientCAs()
	if err != nil {
		return nil, err
	}
	keys, err := o.echKeys()
	if err != nil {
		return nil, fmt.Errorf("tls.ech: %w", err)
	}
	return &tlsFiles{tlsKey(o, text, keys), pool, keys}, nil
}
