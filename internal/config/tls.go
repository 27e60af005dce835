package config

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	"millrace/internal/server"
)

// tls checks that certificates, keys and listeners are complete and work.
func (c *checker) tls() {
	t := c.cfg.TLS
	unread := c.doc.unread
	switch {
	case unread["tls.cert"] || unread["tls.key"] || unread["tls.listen"] || unread["tls.certificates"]:
	case t.Cert != "" && t.Key == "":
		c.value("tls.cert", "a certificate without its key", "add tls.key (--tls-key): the file of its private key")
	case t.Key != "" && t.Cert == "":
		c.value("tls.key", "a key without its certificate", "add tls.cert (--tls-cert): the file with the certificate and its chain")
	case t.Cert != "" && len(t.Listen) == 0:
		c.value("tls.cert", "a certificate, but no address for HTTPS", "add tls.listen (--tls-listen), for example :8443")
	case len(t.Certificates) > 0 && len(t.Listen) == 0:
		c.value("tls.certificates[0].cert", "a certificate, but no address for HTTPS", "add tls.listen (--tls-listen), for example :8443")
	case len(t.Pairs()) == 0 && len(t.Listen) > 0 && t.Auto == nil:
		c.value("tls.listen", "HTTPS without a certificate", "add \"auto: on\" below tls, and it comes by itself (--domain), or tls.cert and tls.key (--tls-cert, --tls-key)")
	case t.Auto != nil && t.Auto.Addresses && len(t.Auto.Wanted(c.hosts())) == 0:
		c.value(autoPath+".addresses", "this machine has no public IP address of its own", "name the one that leads to it: hosts: [203.0.113.5] below tls.auto (--domain 203.0.113.5)")
	case t.Auto != nil && len(t.Auto.Hosts) == 0 && len(t.Auto.Wanted(c.hosts())) == 0 && t.Auto.OnDemand.Ask == "": // what is wrong with Hosts is told below
		c.value(autoPath, "no site has a host that a certificate could be for", "add hosts: [example.org] to a site, or below tls.auto (--domain example.org)")
	}
	if t.RequiresClients() && !t.Redirects() && slices.ContainsFunc(c.cfg.Listen, func(a string) bool { return !strings.HasPrefix(a, unixPrefix) }) {
		c.value("tls.client_ca", "clients must have a certificate, but the addresses for plain HTTP serve the same sites without one", "add \"redirect: true\" below tls, or write listen: []; or client_auth: optional")
	}
	for key, err := range t.Check() {
		c.value("tls."+key, err.Error(), "")
	}
	if t.Redirects() && len(t.Listen) == 0 && !unread["tls.listen"] {
		c.value("tls.redirect", "nowhere to redirect to: tls.listen is empty", "add tls.listen, for example :8443")
	}
	c.certificates()
	c.unproved()
}

// autoPath is the key of certificates from a CA.
const autoPath = "tls.auto"

// Where a site with certificates from a CA is served by default: CAs and visitors connect
// to these ports.
const (
	autoListen     = ":80"
	autoListenTLS  = ":443"
	internalListen = "127.0.0.1:8443"
)

// automatic sets the default addresses of a site with certificates from a CA.
func (c *Config) automatic(doc *document) {
	auto := c.TLS.Auto
	if auto == nil {
		return
	}
	set := func(key string) bool {
		_, ok := doc.values[key]
		return ok || doc.unread[key]
	}
	if !set("tls.listen") && len(c.TLS.Listen) == 0 {
		c.TLS.Listen = []string{autoListenTLS}
		if auto.Internal() {
			c.TLS.Listen = []string{internalListen}
		}
	}
	if !set("listen") && !auto.Internal() && (!c.program || len(c.Listen) == 0) {
		c.Listen = []string{autoListen}
	}
}

// hosts are those of all sites.
func (c *checker) hosts() []string {
	var all []string
	for _, s := range c.cfg.Sites {
		all = append(all, s.Hosts...)
	}
	return all
}

// certificates checks every pair of files, and that no two are for the same name.
func (c *checker) certificates() {
	t := c.cfg.TLS
	first := map[string]string{} // the file, by kind of key and name
	c.certificate("tls", server.KeyPair{Cert: t.Cert, Key: t.Key}, first)
	for i, pair := range t.Certificates {
		path := fmt.Sprintf("tls.certificates[%d]", i)
		if c.doc.unread[path] || c.doc.unread[path+unknownKey] {
			continue
		}
		if pair.Cert == "" {
			c.key(path+".cert", "a certificate is missing here", "write cert: and key:, a PEM file each")
			continue
		}
		if pair.Key == "" {
			c.value(path+".cert", "a certificate without its key", "add key: the file of its private key")
			continue
		}
		c.certificate(path, pair, first)
	}
}

// certificate checks one pair. first is what the pairs before it are for.
func (c *checker) certificate(path string, pair server.KeyPair, first map[string]string) {
	cert := pair.Cert == "" || c.readable(path+".cert", pair.Cert)
	key := pair.Key == "" || c.readable(path+".key", pair.Key)
	if !cert || !key || pair.Cert == "" || pair.Key == "" {
		return
	}
	read, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		message, hint := notAPair(pair, err)
		c.value(path+".cert", message, hint)
		return
	}
	c.usable(path+".cert", pair, read.Leaf)
	kind := read.Leaf.PublicKeyAlgorithm.String()
	reported := false
	for _, name := range server.CertificateNames(read.Leaf) {
		other, twice := first[kind+" "+name]
		if !twice {
			first[kind+" "+name] = pair.Cert
			continue
		}
		if !reported {
			c.value(path+".cert", fmt.Sprintf("%s and %s both have a key of the kind %s and are both for %s", pair.Cert, other, kind, name), "leave one of them out; only certificates of different kinds, as ECDSA and RSA, can share a name")
			reported = true
		}
	}
}
