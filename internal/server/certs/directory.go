package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"millrace/internal/server"
)

// Bounds of the request for a CA's directory.
const (
	directoryTime = 3 * time.Second
	mostDirectory = 64 << 10
)

// checkDirectories checks that the URLs of CAs are ACME directories: a mistake would show
// only as names without certificates. A CA that does not answer now is no mistake.
func checkDirectories(ctx context.Context, o server.AutoOptions, roots *x509.CertPool) error {
	client := &http.Client{Timeout: directoryTime, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots},
	}}
	for i, ca := range o.CA {
		if ca == server.CAInternal || ca == server.CALetsEncrypt || ca == server.CALetsEncryptStaging {
			continue
		}
		if what := notADirectory(ctx, client, ca); what != "" {
			return fmt.Errorf("ca[%d]: %s answers with %s, and not with an ACME directory (RFC 8555, 7.1.1): write the URL that the CA gives for that, as in https://acme-v02.api.letsencrypt.org/directory", i, ca, what)
		}
	}
	return nil
}

// notADirectory describes what a URL answers with instead of an ACME directory; "" where
// it is one, or does not answer.
func notADirectory(ctx context.Context, client *http.Client, ca string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, ca, nil)
	if err != nil {
		return ""
	}
	resp, err := client.Do(r)
	if err != nil || resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests {
		if err == nil {
			_ = resp.Body.Close() // not read
		}
		return ""
	}
	defer resp.Body.Close()
	var directory struct {
		NewNonce string `json:"newNonce"`
		NewOrder string `json:"newOrder"`
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, mostDirectory))
	switch {
	case resp.StatusCode != http.StatusOK:
		return resp.Status
	case err != nil:
		return ""
	case json.Unmarshal(text, &directory) != nil:
		return "a page (" + http.DetectContentType(text) + ")"
	case directory.NewNonce == "" || directory.NewOrder == "":
		return "JSON of another kind"
	}
	return ""
}
