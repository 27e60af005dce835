package certs

import (
	"crypto/x509"
	"fmt"
	"os"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"

	"millrace/internal/server"
)

// authorities are the CAs to ask, in turn, as the options name them.
func authorities(named []string) []string {
	if len(named) == 0 {
		return []string{server.CALetsEncrypt}
	}
	return named
}

// directoryOf is the URL of a CA's ACME directory.
func directoryOf(ca string) string {
	switch ca {
	case server.CALetsEncrypt:
		return certmagic.LetsEncryptProductionCA
	case server.CALetsEncryptStaging:
		return certmagic.LetsEncryptStagingCA
	}
	return ca
}

// readRoots are those of the system and of a PEM file; nil, which means those of
// the system, for no file.
func readRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("ca_roots: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_roots: %s has no certificate in PEM", file)
	}
	return pool, nil
}

func externalAccount(a server.ExternalAccount) *acme.EAB {
	return &acme.EAB{KeyID: a.KeyID, MACKey: a.MACKey}
}
