package server

import (
	"crypto/tls"
	"fmt"
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
	// MinVersion is the oldest version of TLS that is spoken: "1.2" or "1.3".
	// Of 1.2 only suites with forward secrecy and authenticated encryption are.
	// Default "1.2".
	MinVersion string `yaml:"min_version"`
	// Redirect lets the plain listeners answer every request with a 308 to
	// the https address, for hosts that a site or a certificate names; for
	// others with 404.
	Redirect bool `yaml:"redirect"`
}

// KeyPair is a certificate and its key.
type KeyPair struct {
	// Cert is a PEM file: the certificate with its chain.
	Cert string `yaml:"cert"`
	// Key is the PEM file of its private key.
	Key string `yaml:"key"`
}

// Pairs are all certificates with their keys; the first is the default.
func (o TLSOptions) Pairs() []KeyPair {
	var all []KeyPair
	if o.Cert != "" {
		all = append(all, KeyPair{o.Cert, o.Key})
	}
	return append(all, o.Certificates...)
}

// tlsVersions are what tls.min_version may say.
var tlsVersions = map[string]uint16{"": tls.VersionTLS12, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o TLSOptions) Check() map[string]error {
	if tlsVersions[o.MinVersion] == 0 {
		return map[string]error{"min_version": fmt.Errorf("%q is no version of TLS that is spoken here: write \"1.2\" or \"1.3\"", o.MinVersion)}
	}
	return nil
}

// newTLS is what the TLS listeners agree to: of TLS 1.2 only forward secrecy
// with authenticated encryption, as RFC 9325 wants it, and no curve that nobody
// uses but who wants to see us compute.
func newTLS(o TLSOptions, certs *certificates) *tls.Config {
	return &tls.Config{
		MinVersion: tlsVersions[o.MinVersion],
		NextProtos: []string{"h2", "http/1.1"},
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
