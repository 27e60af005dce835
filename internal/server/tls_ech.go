package server

import (
	"crypto/ecdh"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// Blocks of RFC 9934.
const (
	echKeyBlock    = "PRIVATE KEY"
	echConfigBlock = "ECHCONFIG"
)

// echKeys reads the files of ECH.
func (o TLSOptions) echKeys() (all []tls.EncryptedClientHelloKey, err error) {
	for i, file := range o.ECH {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err //nolint:wrapcheck // names the file
		}
		keys, err := parseECH(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for j := range keys {
			keys[j].SendAsRetry = i == 0
		}
		all = append(all, keys...)
	}
	return all, nil
}

var errECH = errors.New("it is no file of RFC 9934: a PRIVATE KEY (X25519) followed by its ECHCONFIG, as `openssl ech` makes it")

// parseECH reads one file: a key and the configurations that it is for.
func parseECH(text []byte) (all []tls.EncryptedClientHelloKey, err error) {
	keyBlock, text := pem.Decode(text)
	configBlock, _ := pem.Decode(text)
	if keyBlock == nil || keyBlock.Type != echKeyBlock || configBlock == nil || configBlock.Type != echConfigBlock {
		return nil, errECH
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, errors.Join(errECH, err)
	}
	private, ok := parsed.(*ecdh.PrivateKey)
	if !ok || private.Curve() != ecdh.X25519() {
		return nil, errECH
	}
	list := configBlock.Bytes // ECHConfigList: a length, then each with version and length (RFC 9849, 4)
	if len(list) < 2 || int(list[0])<<8|int(list[1]) != len(list)-2 {
		return nil, errECH
	}
	for list = list[2:]; len(list) > 0; {
		if len(list) < 4 {
			return nil, errECH
		}
		n := 4 + (int(list[2])<<8 | int(list[3]))
		if len(list) < n {
			return nil, errECH
		}
		all = append(all, tls.EncryptedClientHelloKey{Config: list[:n:n], PrivateKey: private.Bytes()})
		list = list[n:]
	}
	if len(all) == 0 {
		return nil, errECH
	}
	return all, nil
}
