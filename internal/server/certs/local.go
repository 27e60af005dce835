package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"millrace/internal/server"
)

// The CA of this machine's own. Its root lives long, because people install it
// by hand; certificates live short, because they come by themselves.
const (
	rootLife      = 10 * 365 * 24 * time.Hour
	leafLife      = 7 * 24 * time.Hour
	clockTurnBack = time.Hour // of clients whose clock is behind
)

// local is a CA of this machine's own, for development.
type local struct {
	storage certmagic.Storage
	first   sync.Mutex // held while the root is made: waiting for the storage's lock takes a second at least
}

// IssuerKey implements [certmagic.Issuer].
func (*local) IssuerKey() string { return server.CAInternal }

// Issue implements [certmagic.Issuer].
func (l *local) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	root, key, err := l.root(ctx)
	if err != nil {
		return nil, fmt.Errorf("the internal CA: %w", err)
	}
	now := time.Now()
	leaf := &x509.Certificate{
		SerialNumber: serial(),
		DNSNames:     csr.DNSNames,
		IPAddresses:  csr.IPAddresses,
		NotBefore:    now.Add(-clockTurnBack),
		NotAfter:     earlier(now.Add(leafLife), root.NotAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, root, csr.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("the internal CA: %w", err)
	}
	return &certmagic.IssuedCertificate{Certificate: encode("CERTIFICATE", der)}, nil
}

// root reads the CA's certificate and key, and makes them the first time. Only then do
// names, and machines that share the storage, wait for each other.
func (l *local) root(ctx context.Context) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	if cert, key, err := l.read(ctx); !errors.Is(err, fs.ErrNotExist) {
		return cert, key, err
	}
	l.first.Lock()
	defer l.first.Unlock()
	if cert, key, err := l.read(ctx); !errors.Is(err, fs.ErrNotExist) {
		return cert, key, err
	}
	if err := l.storage.Lock(ctx, server.CAInternal); err != nil {
		return nil, nil, fmt.Errorf("lock the root: %w", err)
	}
	defer func() { _ = l.storage.Unlock(context.WithoutCancel(ctx), server.CAInternal) }()
	cert, key, err := l.read(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return l.make(ctx)
	}
	return cert, key, err
}

func (l *local) read(ctx context.Context) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certPEM, err := l.storage.Load(ctx, server.InternalRoot)
	if err != nil {
		return nil, nil, fmt.Errorf("read the root: %w", err)
	}
	keyPEM, err := l.storage.Load(ctx, server.InternalRootKey)
	if err != nil {
		return nil, nil, fmt.Errorf("read the root's key: %w", err)
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, fmt.Errorf("%s and %s are not PEM files: delete both, and new ones are made", server.InternalRoot, server.InternalRootKey)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("read the root: %w", err)
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("read the root's key: %w", err)
	}
	return cert, key, nil
}

func (l *local) make(ctx context.Context) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the root's key: %w", err)
	}
	host, _ := os.Hostname()
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "Millrace on " + host + ", " + now.Format(time.DateOnly)},
		NotBefore:             now.Add(-clockTurnBack),
		NotAfter:              now.Add(rootLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make the root: %w", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("make the root's key: %w", err)
	}
	// The key first: a certificate without one would never be mended.
	if err := l.storage.Store(ctx, server.InternalRootKey, encode("EC PRIVATE KEY", keyDER)); err != nil {
		return nil, nil, fmt.Errorf("write the root's key: %w", err)
	}
	if err := l.storage.Store(ctx, server.InternalRoot, encode("CERTIFICATE", der)); err != nil {
		return nil, nil, fmt.Errorf("write the root: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("make the root: %w", err)
	}
	return cert, key, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// serial is random, with 127 bits (RFC 5280, 4.1.2.2, allows 159).
func serial() *big.Int {
	bytes := make([]byte, 16)
	_, _ = rand.Read(bytes) // never fails
	bytes[0] &= 0x7f
	return new(big.Int).SetBytes(bytes)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
