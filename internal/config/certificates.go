package config

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"millrace/internal/server"
)

// notAPair says why a certificate and a key cannot be used together, and what to
// do. The key may belong to another certificate of the file.
func notAPair(pair server.KeyPair, err error) (message, hint string) {
	for i, c := range chainOf(pair.Cert) {
		one := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
		key, e := os.ReadFile(pair.Key)
		if e != nil {
			break
		}
		if _, e := tls.X509KeyPair(one, key); e == nil && i > 0 {
			return fmt.Sprintf("the chain in %s is in the wrong order: the certificate that the key is for is number %d in it", pair.Cert, i+1),
				"put the certificate of the site first, and below it that of its issuer, as in `cat site.pem intermediate.pem >chain.pem`"
		}
	}
	return "certificate and key are not a pair: " + strings.TrimPrefix(err.Error(), "tls: "),
		fmt.Sprintf("compare `openssl x509 -noout -pubkey -in %s` with `openssl pkey -pubout -in %s`: both must print the same", pair.Cert, pair.Key)
}

// chainOf are the certificates of a file; those that cannot be read are left out.
func chainOf(file string) (chain []*x509.Certificate) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return chain
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			chain = append(chain, c)
		}
	}
}

// outOfOrder is the place of the first certificate of a chain whose issuer is in
// it, too, but not where clients look: next; 0 where there is none.
func outOfOrder(chain []*x509.Certificate) int {
	for i, c := range chain {
		issued := func(by *x509.Certificate) bool { return bytes.Equal(c.RawIssuer, by.RawSubject) }
		if issued(c) || i+1 < len(chain) && issued(chain[i+1]) {
			continue
		}
		if slices.ContainsFunc(chain, issued) {
			return i + 1
		}
	}
	return 0
}

// usable reports what clients would refuse about a certificate that fits its key.
func (c *checker) usable(path string, pair server.KeyPair, leaf *x509.Certificate) {
	if at := outOfOrder(chainOf(pair.Cert)); at > 0 {
		c.value(path, fmt.Sprintf("the chain in %s is in the wrong order: number %d is not followed by its issuer", pair.Cert, at), "put the certificate of the site first, and below each the one of its issuer")
	}
	if time.Now().After(leaf.NotAfter) {
		c.value(path, fmt.Sprintf("the certificate %s has expired on %s", pair.Cert, leaf.NotAfter.Format(time.DateOnly)), "get a new one; with \"auto: on\" below tls certificates come by themselves and are renewed")
	}
	hosts := c.hosts()
	if len(hosts) == 0 || c.cfg.TLS.Auto != nil || len(server.CertificateNames(leaf)) == 0 {
		return
	}
	for _, s := range c.cfg.Sites {
		if len(s.Hosts) == 0 { // every host
			return
		}
	}
	if !slices.ContainsFunc(hosts, func(host string) bool { return leaf.VerifyHostname(strings.Replace(host, "*", "any", 1)) == nil }) {
		c.value(path, fmt.Sprintf("the certificate %s is for %s, and no site has such a host", pair.Cert, strings.Join(server.CertificateNames(leaf), ", ")), "correct the path, or the hosts of the sites ("+strings.Join(hosts, ", ")+")")
	}
}

// unproved reports wildcard hosts of sites that a CA would want proof in the DNS
// for, when nobody can give it.
func (c *checker) unproved() {
	auto := c.cfg.TLS.Auto
	if auto == nil || auto.OnDemand.Ask != "" {
		return
	}
	var leaves []*x509.Certificate
	for _, pair := range c.cfg.TLS.Pairs() {
		leaves = append(leaves, chainOf(pair.Cert)...)
	}
	for i, s := range c.cfg.Sites {
		for j, host := range s.Hosts {
			err := auto.CheckHost(host)
			if err == nil || !strings.HasPrefix(host, "*.") ||
				slices.ContainsFunc(leaves, func(l *x509.Certificate) bool { return slices.Contains(server.CertificateNames(l), host) }) {
				continue
			}
			c.value(fmt.Sprintf("sites[%d].hosts[%d]", i, j), err.Error(), "")
		}
	}
}
